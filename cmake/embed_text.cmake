# cmake -DINPUT=file -DSTEM=output -DSYMBOL=name -P embed_text.cmake: see kv8_embed in kv8_targets.cmake.
file(READ ${INPUT} text)
if(text MATCHES "\\)kv8text\"")
  message(FATAL_ERROR "${INPUT} holds the end mark of the raw string that should hold it.")
endif()
set(declaration "extern const std::string_view ${SYMBOL}")
file(WRITE ${STEM}.h "#pragma once\n\n#include <string_view>\n\nnamespace kv8::embedded {\n${declaration};\n}\n")
# sizeof, not strlen: a text may hold a zero byte.
file(WRITE ${STEM}.cc
  "#include \"embedded/${SYMBOL}.h\"\n\nnamespace kv8::embedded {\n"
  "static const char kText[] = R\"kv8text(${text})kv8text\";\n"
  "${declaration};\nconst std::string_view ${SYMBOL}(kText, sizeof(kText) - 1);\n}\n")
