// An engine as the subject of a measurement.
#pragma once

#include <memory>

#include "bench/subject.h"
#include "engine/engine.h"

namespace kv8::bench {

// Draws greedily and never ends at an end-of-sequence token.
std::unique_ptr<Subject> engine_subject(std::unique_ptr<engine::Engine> engine, std::string name,
                                        std::string description);

}  // namespace kv8::bench
