# The CUDA back end: ZPP_ENABLE_CUDA decides, ZPP_HAS_CUDA says.
#
# Needs a CUDA toolkit and the header of NCCL; the library is loaded when a
# program asks for the back end, so that libzpp_rt works without either.
include(${CMAKE_CURRENT_LIST_DIR}/CudaToolkit.cmake)

set(ZPP_ENABLE_CUDA AUTO CACHE STRING
  "Build the CUDA kernels and the cuda back end of libzpp_rt: AUTO (if a toolkit \
and NCCL are found), ON or OFF")
set_property(CACHE ZPP_ENABLE_CUDA PROPERTY STRINGS AUTO ON OFF)

string(TOUPPER "${ZPP_ENABLE_CUDA}" zpp_cuda_mode)
if(NOT zpp_cuda_mode MATCHES "^(AUTO|ON|TRUE|YES|1|OFF|FALSE|NO|0)$")
  message(FATAL_ERROR "expected ZPP_ENABLE_CUDA to be AUTO, ON or OFF, but got "
    "'${ZPP_ENABLE_CUDA}'")
endif()

set(ZPP_HAS_CUDA OFF)
if(ZPP_ENABLE_CUDA)
  zpp_find_cuda(zpp_cuda_missing)
  find_package(NCCL ${ZPP_NCCL_MINIMUM} QUIET)
  if(NOT NCCL_FOUND)
    set(zpp_nccl_missing "found no NCCL of version ${ZPP_NCCL_MINIMUM} or newer")
    if(NCCL_VERSION)
      string(APPEND zpp_nccl_missing " (${NCCL_INCLUDE_DIR} is ${NCCL_VERSION})")
    endif()
    if(zpp_cuda_missing)
      string(APPEND zpp_cuda_missing ", ")
    endif()
    string(APPEND zpp_cuda_missing "${zpp_nccl_missing}")
  endif()
  if(NOT zpp_cuda_missing)
    set(ZPP_HAS_CUDA ON)
  endif()
else()
  set(zpp_cuda_missing "ZPP_ENABLE_CUDA=${ZPP_ENABLE_CUDA}")
endif()

if(ZPP_HAS_CUDA)
  zpp_enable_cuda()
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^([0-9]+[a-z]?)-virtual" "compute_\\1"
    OUTPUT_VARIABLE zpp_cuda_status)
  list(TRANSFORM zpp_cuda_status REPLACE "^([0-9]+[a-z]?).*" "sm_\\1")
  list(JOIN zpp_cuda_status ", " zpp_cuda_status)
  set(zpp_cuda_status "compiled for ${zpp_cuda_status}")
  message(STATUS "CUDA back end: on; CUDA ${CUDAToolkit_VERSION} "
    "(${CMAKE_CUDA_COMPILER}), NCCL ${NCCL_VERSION} (${NCCL_INCLUDE_DIR}), "
    "${zpp_cuda_status}")
elseif(zpp_cuda_missing MATCHES "^ZPP_ENABLE_CUDA")
  set(zpp_cuda_status "not compiled: ${zpp_cuda_missing}")
  message(STATUS "CUDA back end: off; ${zpp_cuda_missing}")
else()
  set(zpp_cuda_status "not compiled: ${zpp_cuda_missing}")
  set(zpp_cuda_remedy "`scripts/setup.sh --cuda` installs CUDA and NCCL \
from PyPI, or set CUDAToolkit_ROOT and NCCL_ROOT")
  if(zpp_cuda_mode STREQUAL "AUTO")
    message(STATUS "CUDA back end: off; ${zpp_cuda_missing}; only the cpu "
      "back end is built (${zpp_cuda_remedy})")
  else()
    message(FATAL_ERROR "ZPP_ENABLE_CUDA=${ZPP_ENABLE_CUDA}, but "
      "${zpp_cuda_missing}: ${zpp_cuda_remedy}")
  endif()
endif()
# For the summary of scripts/run_tests.py.
set(ZPP_CUDA_STATUS "${zpp_cuda_status}" CACHE INTERNAL "What is built of CUDA")
