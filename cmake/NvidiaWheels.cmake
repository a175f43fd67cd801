# zpp_nvidia_wheels(RESULT): the folders named `nvidia` that NVIDIA's packages
# from PyPI are installed in, for headers, libraries and nvcc: what
# `scripts/setup.sh --cuda` makes, then the site-packages of Python.
function(zpp_nvidia_wheels result)
  get_filename_component(root "${CMAKE_CURRENT_FUNCTION_LIST_DIR}" DIRECTORY)
  set(folders "${root}/.cuda/nvidia")
  set(pythons "")
  if(Python3_EXECUTABLE)
    list(APPEND pythons "${Python3_EXECUTABLE}")
  endif()
  find_program(zpp_python3 python3)
  if(zpp_python3)
    list(APPEND pythons "${zpp_python3}")
  endif()
  unset(zpp_python3 CACHE)
  foreach(python IN LISTS pythons)
    execute_process(
      COMMAND "${python}" -c
        "import sysconfig; print(sysconfig.get_path('platlib'))"
      OUTPUT_VARIABLE site_packages OUTPUT_STRIP_TRAILING_WHITESPACE
      ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0)
      list(APPEND folders "${site_packages}/nvidia")
    endif()
  endforeach()
  set(existing "")
  foreach(folder IN LISTS folders)
    if(IS_DIRECTORY "${folder}")
      list(APPEND existing "${folder}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES existing)
  set(${result} "${existing}" PARENT_SCOPE)
endfunction()
