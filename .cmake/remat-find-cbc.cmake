# SPDX-License-Identifier: BSL-1.0
# Finds COIN-OR CBC through pkg-config: remat_cbc_found_FOUND and the target PkgConfig::remat_cbc_found.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND AND NOT TARGET PkgConfig::remat_cbc_found)
  pkg_check_modules(remat_cbc_found QUIET IMPORTED_TARGET GLOBAL cbc)
  if(remat_cbc_found_FOUND)
    get_target_property(_remat_libraries PkgConfig::remat_cbc_found INTERFACE_LINK_LIBRARIES)
    # The module also names what COIN's shared libraries link for themselves (zlib, LAPACK, …), whose development packages
    # need not be here.
    if("${_remat_libraries}" MATCHES "libCbc\\.so")
      list(FILTER _remat_libraries INCLUDE REGEX "/lib(Cbc|Cgl|Clp|Osi|Coin)")
      set_target_properties(PkgConfig::remat_cbc_found PROPERTIES INTERFACE_LINK_LIBRARIES "${_remat_libraries}")
    endif()
  endif()
endif()
