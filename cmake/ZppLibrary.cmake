# MLIR's headers, compiled once for all libraries. A target of its own, because
# a precompiled header belongs to the target that it is made for.
option(ZPP_PRECOMPILE_HEADERS "Precompile MLIR's headers" ON)
if(ZPP_PRECOMPILE_HEADERS)
  add_library(ZppPrecompiled OBJECT ${PROJECT_SOURCE_DIR}/lib/Precompiled.cpp)
  set_target_properties(ZppPrecompiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(NOT LLVM_ENABLE_RTTI)
    target_compile_options(ZppPrecompiled PRIVATE -fno-rtti)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Its content decides, not when it was made: compiler caches rely on it.
    target_compile_options(ZppPrecompiled PRIVATE
      "SHELL:-Xclang -fno-pch-timestamp")
  endif()
  target_precompile_headers(ZppPrecompiled PRIVATE
    <mlir/Dialect/Arith/IR/Arith.h>
    <mlir/Dialect/Func/IR/FuncOps.h>
    <mlir/Dialect/LLVMIR/LLVMDialect.h>
    <mlir/Dialect/MemRef/IR/MemRef.h>
    <mlir/Dialect/Tensor/IR/Tensor.h>
    <mlir/Pass/PassManager.h>
    <mlir/IR/PatternMatch.h>
    <mlir/Transforms/DialectConversion.h>)
endif()

option(ZPP_UNITY_BUILD "Compile sources of a library together: twice as fast from nothing" OFF)

# Compiles a target that includes MLIR's headers as LLVM was compiled, and with
# these headers precompiled. Programs get the code of libraries then: it is what
# the precompiled header has.
function(zpp_compile_with_mlir name)
  if(NOT LLVM_ENABLE_RTTI)
    target_compile_options(${name} PRIVATE -fno-rtti)
  endif()
  if(ZPP_PRECOMPILE_HEADERS)
    get_target_property(type ${name} TYPE)
    if(type STREQUAL "EXECUTABLE")
      target_compile_options(${name} PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})
    endif()
    target_precompile_headers(${name} REUSE_FROM ZppPrecompiled)
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    endif()
  endif()
endfunction()

# zpp_add_library(NAME sources... [DEPENDS tablegen...] [LINK libraries...])
#
# A static library of the compiler on top of the MLIR dylib, unless a program links
# MLIR's archives (zpp_link_mlir). NAME starts with Zpp; ZppFoo is exported as zpp::Foo.
function(zpp_add_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  string(REGEX REPLACE "^Zpp" "" export_name ${name})
  add_library(zpp::${export_name} ALIAS ${name})
  set_target_properties(${name} PROPERTIES
    EXPORT_NAME ${export_name}
    POSITION_INDEPENDENT_CODE ON
    UNITY_BUILD ${ZPP_UNITY_BUILD})
  target_compile_features(${name} PUBLIC cxx_std_17)
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set(dylib "$<NOT:$<BOOL:$<TARGET_PROPERTY:ZPP_STATIC_MLIR>>>")
  target_link_libraries(${name} PUBLIC ${ARG_LINK}
    "$<${dylib}:MLIR>" "$<${dylib}:LLVM>")
  zpp_compile_with_mlir(${name})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  set_property(GLOBAL APPEND PROPERTY ZPP_LIBRARIES ${name})
  install(TARGETS ${name} EXPORT ZppTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

option(ZPP_STATIC_PROGRAMS
  "Link LLVM into programs: they start in a tenth of the time, and run without LLVM" ON)
# An embedder's dialects may be on top of the dylib.
if(ZPP_STATIC_PROGRAMS AND NOT ZPP_STABLEHLO_DIALECTS)
  file(GLOB ZPP_MLIR_ARCHIVES ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
  list(FILTER ZPP_MLIR_ARCHIVES EXCLUDE REGEX "CAPI")
endif()
# LLVM was built with them. Only their run-time libraries may be installed.
find_library(ZPP_ZSTD NAMES zstd libzstd.so.1)
find_library(ZPP_ZLIB NAMES z libz.so.1)
# lld and gold can keep equal functions once: a tenth of a program.
include(CheckLinkerFlag)
check_linker_flag(CXX -Wl,--icf=all ZPP_LINKER_HAS_ICF)

# Links a program with MLIR: with its archives where there are some, otherwise with the
# dylib, in which the loader relocates all of LLVM at each start.
function(zpp_link_mlir name)
  if(NOT ZPP_MLIR_ARCHIVES)
    target_link_libraries(${name} PRIVATE MLIR LLVM)
    return()
  endif()
  set_target_properties(${name} PROPERTIES ZPP_STATIC_MLIR ON)
  target_link_libraries(${name} PRIVATE ZppOlderGlibc
    -Wl,--start-group ${ZPP_MLIR_ARCHIVES} -Wl,--end-group
    ${ZPP_ZSTD} ${ZPP_ZLIB} Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(${name} PRIVATE
    -Wl,--gc-sections $<$<BOOL:${ZPP_LINKER_HAS_ICF}>:-Wl,--icf=all>
    -Wl,--exclude-libs,ALL -static-libstdc++ -static-libgcc)
endfunction()
