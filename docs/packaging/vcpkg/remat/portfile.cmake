# SPDX-License-Identifier: BSL-1.0
# An overlay port: it takes the checkout that it stands in. In a registry, vcpkg_from_github or vcpkg_from_git takes the
# archive of a release, instead of this line (README.md of docs/packaging).
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

set(VCPKG_BUILD_TYPE release)  # headers alone
vcpkg_check_features(OUT_FEATURE_OPTIONS disabled_packages INVERTED_FEATURES
  boost CMAKE_DISABLE_FIND_PACKAGE_Boost
  eigen CMAKE_DISABLE_FIND_PACKAGE_Eigen3
  json CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${disabled_packages}
    # What the machine happens to have must not change the port.
    -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON
    -DREMAT_CHART_JS=
    -DREMAT_BUILD_TESTS=OFF -DREMAT_BUILD_EXAMPLES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup()
vcpkg_fixup_pkgconfig()

vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
