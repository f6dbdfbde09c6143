#include "text/jinja/template.h"

#include <new>
#include <utility>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace kv8::text::jinja {

struct Template::Parsed {
  std::string name;
  Body body;
};

namespace {

tl::unexpected<Error> to_error(const std::string& name, const Failure& failure) {
  if (failure.at.line == 0) return make_error(failure.code, "{}: {}", name, failure.message);
  return make_error(failure.code, "{}: line {}, column {}: {}", name, failure.at.line, failure.at.column,
                    failure.message);
}

}  // namespace

Expected<Template> Template::parse(std::string source, std::string name) {
  try {
    Body body = Parser(source).parse();
    return Template(std::make_shared<const Parsed>(Parsed{std::move(name), std::move(body)}));
  } catch (const Failure& failure) {
    return to_error(name, failure);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::out_of_memory, "{}: no memory to parse the template", name);
  }
}

Expected<std::string> Template::render(const OrderedJson& context, const RenderLimits& limits,
                                       const RenderHooks& hooks) const {
  if (!context.is_object()) {
    return make_error(ErrorCode::invalid_argument, "{}: the context must be an object", parsed_->name);
  }
  Budget budget(limits);
  const Budget::Use use(budget);
  try {
    Interpreter interpreter(budget, hooks, Value::from_json(context));
    return interpreter.run(parsed_->body);
  } catch (const Failure& failure) {
    return to_error(parsed_->name, failure);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::out_of_memory, "{}: no memory to render the template", parsed_->name);
  }
}

}  // namespace kv8::text::jinja
