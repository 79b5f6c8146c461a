# find_package(specdec CONFIG): the target specdec::specdec, C and C++17.
get_filename_component(_specdec_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET specdec::specdec)
  add_library(specdec::specdec SHARED IMPORTED)
  set_target_properties(specdec::specdec PROPERTIES
    IMPORTED_LOCATION "${_specdec_root}/lib/libspecdec.so"
    IMPORTED_SONAME "libspecdec.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_specdec_root}/include")
endif()

unset(_specdec_root)
