# The install component `wheel`: what a Python wheel has beside the package,
# relative to the folder of the package. scikit-build-core installs it
# (pyproject.toml), or cmake/prebuilt does from a build tree.
set(wheel_targets zpp_rt)
foreach(target zpp_xla zpp-opt zpp-bundle)
  if(TARGET ${target})
    list(APPEND wheel_targets ${target})
  endif()
endforeach()
add_custom_target(zpp-wheel DEPENDS ${wheel_targets})

if(TARGET zpp_xla)
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
  install(TARGETS zpp-opt zpp-bundle RUNTIME DESTINATION bin
    COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
