// The version of kv8, as semantic versioning counts.
#pragma once

#define KV8_VERSION_MAJOR 0
#define KV8_VERSION_MINOR 1
#define KV8_VERSION_PATCH 0
#define KV8_VERSION "0.1.0"
