# Finds MLIR: 22.1, which Debian has, or later, which other compilers build.
# LLVM's own check of versions takes no range. PATHS: where Debian's and Ubuntu's
# packages are, unless told otherwise.
find_package(MLIR REQUIRED CONFIG PATHS /usr/lib/llvm-22)
if(LLVM_PACKAGE_VERSION VERSION_LESS 22.1)
  message(FATAL_ERROR
    "expected MLIR 22.1 or later, but got ${LLVM_PACKAGE_VERSION} in ${MLIR_DIR}")
endif()
message(STATUS "MLIR ${LLVM_PACKAGE_VERSION} in ${MLIR_DIR}")
