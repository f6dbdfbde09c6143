// What one rendering may use. A template is a stranger's program: every expression and item costs a step,
// every live string and container costs its bytes, every nested call a level, and what goes over a limit is
// an error. The budget of the rendering that runs in this thread is found through Budget::current(), so that
// no value can be made, and no text read (Value::string()), without being counted: a filter or method needs
// to count nothing by itself unless it passes over a text more than once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "text/jinja/limits.h"

namespace kv8::text::jinja {

class Budget {
 public:
  explicit Budget(const RenderLimits& limits) : limits_(limits) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  void step(int64_t count = 1);
  int64_t steps() const { return steps_; }  // so far
  void acquire(size_t bytes);               // counts them; released when the value dies
  void release(size_t bytes) { bytes_ -= bytes; }
  void output(size_t total) const;  // total: bytes written so far
  void enter();
  void leave() { --depth_; }

  static Budget* current();  // nullptr while no template is rendered (parsing)

  // Makes a budget the current one for a rendering.
  class Use {
   public:
    explicit Use(Budget& budget);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Budget* previous_;
  };

 private:
  RenderLimits limits_;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
  int depth_ = 0;
};

// One level of nesting, for as long as it lives.
class Level {
 public:
  explicit Level(Budget& budget) : budget_(budget) { budget_.enter(); }
  ~Level() { budget_.leave(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Budget& budget_;
};

// The bytes of one live value.
class Charge {
 public:
  explicit Charge(size_t bytes);
  ~Charge();
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  Budget* budget_;
  size_t bytes_;
};

// Work that's not an expression of its own (a search, a comparison of containers).
void spend_steps(int64_t count);
// A pass over the bytes of a text: a step for every kBytesPerStep of them.
constexpr size_t kBytesPerStep = 64;
void spend_pass(size_t bytes);
// A copy of this many values, or a walk over as many names.
void spend_copies(size_t values);
// Refuses a value of this size before anything is allocated.
void check_fits(size_t bytes);
// count * size, refused if it doesn't fit.
size_t checked_size(size_t count, size_t size);

}  // namespace kv8::text::jinja
