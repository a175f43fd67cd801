# Leaves only the symbols that begin with `prefix` visible in a shared library. Hidden
# visibility alone leaves those of the standard library's templates: another library
# in the process would call them, perhaps with a standard library of its own.
function(zpp_export_only name prefix)
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${name}.exports)
  if(APPLE)
    file(WRITE ${script} "_${prefix}*\n")
    target_link_options(${name} PRIVATE LINKER:-exported_symbols_list,${script})
  else()
    file(WRITE ${script} "{ global: ${prefix}*; local: *; };\n")
    target_link_options(${name} PRIVATE LINKER:--version-script=${script})
  endif()
endfunction()
