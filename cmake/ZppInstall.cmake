# The installed package: headers, libraries and what find_package(Zpp) reads.
# Included once, after all libraries are defined.
include(CMakePackageConfigHelpers)

set(ZPP_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Zpp)

if(ZPP_BUILD_COMPILER)
  # The umbrella: every library that zpp_add_library has made.
  get_property(zpp_libraries GLOBAL PROPERTY ZPP_LIBRARIES)
  add_library(Zpp INTERFACE)
  add_library(zpp::Zpp ALIAS Zpp)
  target_link_libraries(Zpp INTERFACE ${zpp_libraries})
  install(TARGETS Zpp EXPORT ZppTargets)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/include/zpp
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.inc"
    PATTERN "CMakeFiles" EXCLUDE)
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/zpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.td" PATTERN "*.def")

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/ZppConfig.cmake.in
  ${PROJECT_BINARY_DIR}/ZppConfig.cmake
  INSTALL_DESTINATION ${ZPP_PACKAGE_DIR})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/ZppConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/ZppConfig.cmake
  ${PROJECT_BINARY_DIR}/ZppConfigVersion.cmake
  DESTINATION ${ZPP_PACKAGE_DIR})
install(EXPORT ZppTargets NAMESPACE zpp:: DESTINATION ${ZPP_PACKAGE_DIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
