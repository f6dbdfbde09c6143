#include "cli/terminal.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/output.h"

namespace kv8::cli {

namespace {

std::atomic<bool> g_interrupted{false};

extern "C" void on_interrupt(int /*signal*/) {
  g_interrupted.store(true, std::memory_order_relaxed);
}

constexpr int kBarWidth = 30;

}  // namespace

const std::atomic<bool>& interrupt_flag() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one has its usual effect
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
    return true;
  }();
  static_cast<void>(installed);
  return g_interrupted;
}

void stop_as_interrupted() {
  g_interrupted.store(true, std::memory_order_relaxed);
}

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)) {}

ProgressBar::~ProgressBar() {
  clear();
}

void ProgressBar::update(int64_t done, int64_t total) {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  if (!terminal || total <= 0) return;
  const int64_t permille = done * 1000 / total;
  if (permille == last_permille_) return;
  last_permille_ = permille;
  shown_ = true;
  const auto filled = static_cast<size_t>(permille * kBarWidth / 1000);
  fmt::print(stderr, "\r{} [{}{}] {}/{}", label_, std::string(filled, '#'),
             std::string(kBarWidth - filled, '.'), with_thousands(done), with_thousands(total));
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

void print_fields(std::string_view title, const std::vector<std::pair<std::string, std::string>>& fields) {
  size_t width = 0;
  for (const auto& [name, value] : fields) width = std::max(width, name.size());
  print_output("{}\n", title);
  for (const auto& [name, value] : fields) print_output("  {:<{}}  {}\n", name, width, value);
}

int64_t peak_memory_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace kv8::cli
