# The install component `wheel`: what a Python wheel has beside the package,
# relative to the folder of the package. scikit-build-core installs it
# (pyproject.toml), or cmake/prebuilt does from a build tree.
option(ZPP_WHEEL_STATIC "Link LLVM into the programs of a wheel, for machines without" ON)

# LLVM was built with them. Only their run-time libraries may be installed.
find_library(ZPP_ZSTD NAMES zstd libzstd.so.1)
find_library(ZPP_ZLIB NAMES z libz.so.1)

# lld and gold can keep equal functions once: a tenth of the wheel.
include(CheckLinkerFlag)
check_linker_flag(CXX -Wl,--icf=all ZPP_LINKER_HAS_ICF)

# NAME-static, a program like `name` that needs no library of LLVM.
function(zpp_add_static_program name)
  get_target_property(folder ${name} SOURCE_DIR)
  get_target_property(sources ${name} SOURCES)
  get_target_property(libraries ${name} LINK_LIBRARIES)
  list(TRANSFORM sources PREPEND ${folder}/)
  list(REMOVE_ITEM libraries MLIR LLVM)
  file(GLOB archives ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
  list(FILTER archives EXCLUDE REGEX "CAPI")

  add_executable(${name}-static EXCLUDE_FROM_ALL ${sources})
  set_target_properties(${name}-static PROPERTIES ZPP_STATIC_MLIR ON
    BUILD_RPATH "\$ORIGIN/../lib")
  # Code for other processors than this machine's would be most of the program.
  target_compile_definitions(${name}-static PRIVATE ZPP_NATIVE_TARGET_ONLY)
  zpp_compile_with_mlir(${name}-static)
  target_include_directories(${name}-static PRIVATE ${folder})
  target_link_libraries(${name}-static PRIVATE ${libraries} ZppOlderGlibc
    -Wl,--start-group ${archives} -Wl,--end-group
    ${ZPP_ZSTD} ${ZPP_ZLIB} Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(${name}-static PRIVATE
    -s -Wl,--gc-sections $<$<BOOL:${ZPP_LINKER_HAS_ICF}>:-Wl,--icf=all>
    -Wl,--exclude-libs,ALL -static-libstdc++ -static-libgcc)
endfunction()

set(wheel_targets zpp_rt)
if(TARGET zpp_xla)
  list(APPEND wheel_targets zpp_xla)
  # Under the names by which they are loaded: wheels have no symbolic links.
  install(PROGRAMS $<TARGET_FILE:zpp_rt> DESTINATION lib
    RENAME $<TARGET_SONAME_FILE_NAME:zpp_rt>
    COMPONENT wheel EXCLUDE_FROM_ALL)
  install(PROGRAMS $<TARGET_FILE:zpp_xla> DESTINATION lib
    RENAME libzpp_xla.so
    COMPONENT wheel EXCLUDE_FROM_ALL)
else()
  install(CODE
    "message(FATAL_ERROR \"expected libzpp_xla in a wheel, but it is not built: expected a Python3_EXECUTABLE with jaxlib\")"
    COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
if(ZPP_BUILD_COMPILER)
  foreach(program zpp-opt zpp-bundle)
    if(ZPP_WHEEL_STATIC AND EXISTS ${LLVM_LIBRARY_DIR}/libMLIRIR.a)
      zpp_add_static_program(${program})
      list(APPEND wheel_targets ${program}-static)
      install(PROGRAMS $<TARGET_FILE:${program}-static> DESTINATION bin
        RENAME ${program} COMPONENT wheel EXCLUDE_FROM_ALL)
    else()
      list(APPEND wheel_targets ${program})
      install(TARGETS ${program} RUNTIME DESTINATION bin
        COMPONENT wheel EXCLUDE_FROM_ALL)
    endif()
  endforeach()
endif()
# Of the libraries that the programs need, this is the only one that a Linux may
# lack (PEP 600).
if(ZPP_BUILD_COMPILER AND ZPP_ZSTD MATCHES "\\.so")
  file(REAL_PATH ${ZPP_ZSTD} zstd)
  install(PROGRAMS ${zstd} DESTINATION lib RENAME libzstd.so.1
    COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
add_custom_target(zpp-wheel DEPENDS ${wheel_targets})
