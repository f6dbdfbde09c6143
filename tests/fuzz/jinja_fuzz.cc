// Any bytes as a chat template: it must render or fail, within its limits.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/json.h"
#include "text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kv8;
  static const OrderedJson context = OrderedJson::parse(R"({
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls": [{"a": [1, 2.5]}]}],
    "tools": null, "add_generation_prompt": true, "bos_token": "<s>", "s": "héllo wörld", "n": 7, "d": {"b": 2, "a": 1},
    "l": [3, 1, 2]})");
  text::jinja::RenderLimits limits;
  limits.max_steps = 100'000;
  limits.max_memory_bytes = size_t{32} << 20;
  limits.max_output_bytes = size_t{1} << 20;
  const auto parsed =
      text::jinja::Template::parse(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
  if (parsed) (void)parsed->render(context, limits);
  return 0;
}
