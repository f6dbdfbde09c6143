// Models that kv8 fetches by name. The work is done by scripts/fetch_model.py, whose text is part of the
// program.
#pragma once

#include <string>

#include "core/error.h"

namespace kv8::cli {

bool is_fetchable_model(const std::string& name);
std::string fetchable_models();  // "smollm2-135m"

// The path of the model's file, fetched into the cache folder if it isn't there yet (KV8_CACHE,
// XDG_CACHE_HOME, or
// ~/.cache/kv8). Progress goes to stderr. Errors: io, with what the script said on stderr; cancelled.
Expected<std::string> fetch_model(const std::string& name);

}  // namespace kv8::cli
