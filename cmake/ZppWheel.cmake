# The install component `wheel`: what a Python wheel has beside the package,
# relative to the folder of the package. scikit-build-core installs it
# (pyproject.toml), or cmake/prebuilt does from a build tree.
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
  list(APPEND wheel_targets zpp-opt zpp-bundle)
  set_target_properties(zpp-opt zpp-bundle PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  install(TARGETS zpp-opt zpp-bundle RUNTIME DESTINATION bin
    COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
# Of the libraries that the programs need, this is the only one that a Linux may
# lack (PEP 600).
if(ZPP_BUILD_COMPILER AND ZPP_ZSTD MATCHES "\\.so")
  file(REAL_PATH ${ZPP_ZSTD} zstd)
  install(PROGRAMS ${zstd} DESTINATION lib RENAME libzstd.so.1
    COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
add_custom_target(zpp-wheel DEPENDS ${wheel_targets})
