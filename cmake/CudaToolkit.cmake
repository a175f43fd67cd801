# Finds nvcc and enables CUDA with it, from a toolkit or from NVIDIA's wheels.
#
# `cmake -P` with this file prints which of nvcc and NCCL are missing; that is how
# scripts/setup.sh asks.
include(${CMAKE_CURRENT_LIST_DIR}/NvidiaWheels.cmake)

# The first toolkit that knows all GPUs up to sm_120.
set(ZPP_CUDA_MINIMUM 12.8)
# ncclCommSplit is new in 2.18; 2.19 has its corrections.
set(ZPP_NCCL_MINIMUM 2.19)

# Machine code for data center Ampere and Hopper; newer GPUs compile the PTX of
# the last one when the library is loaded.
set(CMAKE_CUDA_ARCHITECTURES 80-real 90 CACHE STRING "CUDA architectures")

# zpp_find_cuda(REASON): sets CMAKE_CUDA_COMPILER to the first nvcc that is new
# enough and works, or REASON to what is missing. What the user has named comes
# first: CMAKE_CUDA_COMPILER, CUDACXX, CUDAToolkit_ROOT; then PATH, the usual
# directories, wheels.
macro(zpp_find_cuda reason)
  set(${reason} "")
  if(IS_ABSOLUTE "${CMAKE_CUDA_COMPILER}" AND NOT EXISTS "${CMAKE_CUDA_COMPILER}")
    # CMake's error would not say what to do.
    message(FATAL_ERROR "${CMAKE_BINARY_DIR} was configured with "
      "${CMAKE_CUDA_COMPILER}, which is gone; remove the build directory")
  elseif(CMAKE_CUDA_COMPILER)
    zpp_use_wheel_layout("${CMAKE_CUDA_COMPILER}")
  else()
    # Search again for files that an earlier run did not find.
    unset(CMAKE_CUDA_COMPILER CACHE)
    zpp_find_nvcc(zpp_nvcc ${reason})
    if(zpp_nvcc)
      zpp_use_wheel_layout("${zpp_nvcc}")
      # check_language passes the environment on, not these variables.
      set(ENV{CUDACXX} "${zpp_nvcc}")
      if(CMAKE_CUDA_HOST_COMPILER)
        set(ENV{CUDAHOSTCXX} "${CMAKE_CUDA_HOST_COMPILER}")
      endif()
      include(CheckLanguage)
      check_language(CUDA)
      if(NOT CMAKE_CUDA_COMPILER)
        unset(CMAKE_CUDA_COMPILER CACHE)
        set(${reason} "${zpp_nvcc} cannot compile and link a program (it needs \
g++ or CMAKE_CUDA_HOST_COMPILER, and glibc 2.42 needs CUDA 13.2; see ${CMAKE_BINARY_DIR}${CMAKE_FILES_DIRECTORY})")
      endif()
    endif()
  endif()
endmacro()

# zpp_enable_cuda(): enables the language for this directory and those below.
macro(zpp_enable_cuda)
  # The linker's options are for the C++ compiler, which links everything here;
  # nvcc's host compiler may not know them.
  set(zpp_linker_flags "${CMAKE_EXE_LINKER_FLAGS}")
  set(CMAKE_EXE_LINKER_FLAGS "")
  enable_language(CUDA)
  set(CMAKE_EXE_LINKER_FLAGS "${zpp_linker_flags}")
  # Wheels lack the library's name without a version, which the module asks for
  # although only the static one is linked.
  get_filename_component(zpp_cuda_bin "${CMAKE_CUDA_COMPILER}" DIRECTORY)
  find_library(CUDA_CUDART NAMES cudart libcudart.so.13 libcudart.so.12
    HINTS ${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT} "${zpp_cuda_bin}/.."
    PATH_SUFFIXES lib64 lib)
  find_package(CUDAToolkit ${ZPP_CUDA_MINIMUM} REQUIRED)
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
endmacro()

# RESULT: the path of nvcc, or empty with REASON.
function(zpp_find_nvcc result reason)
  set(candidates "")
  if(NOT "$ENV{CUDACXX}" STREQUAL "")
    # Named by the user: this one or none.
    set(candidates "$ENV{CUDACXX}")
  else()
    zpp_nvidia_wheels(wheels)
    list(TRANSFORM wheels APPEND "/cu13")
    foreach(place "${CUDAToolkit_ROOT}" "$ENV{CUDAToolkit_ROOT}" PATH
            "$ENV{CUDA_PATH}" "$ENV{CUDA_HOME}" /usr/local/cuda ${wheels})
      if(place STREQUAL "PATH")
        find_program(zpp_nvcc_here nvcc)
      else()
        find_program(zpp_nvcc_here nvcc
          PATHS "${place}" PATH_SUFFIXES bin NO_DEFAULT_PATH)
      endif()
      if(zpp_nvcc_here)
        list(APPEND candidates "${zpp_nvcc_here}")
      endif()
      unset(zpp_nvcc_here CACHE)
    endforeach()
  endif()
  set(rejected "")
  foreach(nvcc IN LISTS candidates)
    execute_process(COMMAND "${nvcc}" --version
      OUTPUT_VARIABLE output ERROR_QUIET RESULT_VARIABLE status)
    if(NOT status EQUAL 0 OR NOT output MATCHES "release ([0-9]+\\.[0-9]+)")
      list(APPEND rejected "${nvcc} does not run")
    elseif(CMAKE_MATCH_1 VERSION_LESS ZPP_CUDA_MINIMUM)
      list(APPEND rejected "${nvcc} is ${CMAKE_MATCH_1}")
    else()
      set(${result} "${nvcc}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} "" PARENT_SCOPE)
  list(JOIN rejected ", " rejected)
  if(rejected)
    set(rejected " (${rejected})")
  endif()
  set(${reason} "found no CUDA toolkit of version ${ZPP_CUDA_MINIMUM} or newer${rejected}"
    PARENT_SCOPE)
endfunction()

# nvcc links with what is in lib64, which wheels call lib. Only before CUDA is
# enabled.
function(zpp_use_wheel_layout nvcc)
  get_filename_component(nvcc "${nvcc}" REALPATH)
  get_filename_component(root "${nvcc}" DIRECTORY)
  get_filename_component(root "${root}" DIRECTORY)
  if(EXISTS "${root}/lib/libcudart_static.a" AND NOT EXISTS "${root}/lib64")
    set(ENV{CUDAFLAGS} "$ENV{CUDAFLAGS} -L${root}/lib")
  endif()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  # A script knows no system directories, and no policies.
  cmake_minimum_required(VERSION 3.20)
  set(CMAKE_SYSTEM_PREFIX_PATH /usr/local /usr)
  list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
  zpp_find_nvcc(nvcc missing)
  find_package(NCCL ${ZPP_NCCL_MINIMUM} QUIET)
  if(NOT nvcc)
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo nvcc)
  endif()
  if(NOT NCCL_FOUND)
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo nccl)
  endif()
endif()
