// A Jinja2 template: parsed once, rendered many times, from several threads at once if need be. The dialect
// is that of transformers' chat templates: trim_blocks, lstrip_blocks, break and continue, tojson as
// json.dumps, raise_exception, strftime_now, {% generation %}, in an immutable sandbox. A template reads no
// file and no network, and can use no more than RenderLimits allow. include, import, extends and block are
// refused.
#pragma once

#include <memory>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "text/jinja/hooks.h"
#include "text/jinja/limits.h"

namespace kv8::text::jinja {

class Template {
 public:
  // name stands in messages, which say where: "chat_template.jinja: line 3, column 7: ...".
  static Expected<Template> parse(std::string source, std::string name);

  // context: an object, the template's variables. corrupt_data for what the template does wrong and for a
  // limit reached; invalid_argument for what it refuses itself (raise_exception); unsupported for what is
  // left out of the language.
  Expected<std::string> render(const OrderedJson& context, const RenderLimits& limits = {},
                               const RenderHooks& hooks = {}) const;

 private:
  struct Parsed;
  explicit Template(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}

  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace kv8::text::jinja
