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
# A static library of the compiler on top of the MLIR dylib. A program with the
# property ZPP_STATIC_MLIR links MLIR's archives itself instead; the two are
# never mixed. NAME starts with Zpp; ZppFoo is exported as zpp::Foo.
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
