# GoogleTest: the library, or its sources, which machines where nothing can be
# installed bring along.
if(NOT TARGET GTest::gtest)
  find_package(GTest QUIET)
endif()
if(NOT TARGET GTest::gtest)
  find_path(ZPP_GOOGLETEST_DIR googletest/include/gtest/gtest.h
    HINTS ${GTEST_ROOT} ${CMAKE_CURRENT_LIST_DIR}/../third_party/googletest
    PATHS /usr/src/googletest NO_DEFAULT_PATH
    DOC "Sources of GoogleTest")
  if(NOT ZPP_GOOGLETEST_DIR)
    message(FATAL_ERROR "expected GoogleTest for the tests, but got neither the \
library (Debian: libgtest-dev) nor its sources in GTEST_ROOT or \
third_party/googletest; without tests: -DZPP_BUILD_TESTS=OFF")
  endif()
  set(BUILD_GMOCK OFF)
  set(INSTALL_GTEST OFF)
  add_subdirectory(${ZPP_GOOGLETEST_DIR} ${CMAKE_BINARY_DIR}/googletest
    EXCLUDE_FROM_ALL)
endif()
