#include <fmt/format.h>

#include "base/units.h"
#include "record/record_session.h"

namespace millrace::record {
namespace {

constexpr const char* kWithoutCuda = R"(  no process of the command used CUDA: the run has the machine and the threads alone
  if it should have: check that it finds its GPU (nvidia-smi, device settings), and that CUDA_INJECTION64_PATH reaches it
  if not: millrace watch -- COMMAND shows how busy the machine is
)";

std::string steps_line(const RecordOutcome& outcome) {
    if (!outcome.window_step_ms && outcome.steps <= 0) {
        if (outcome.records == 0) return "nothing of a GPU was recorded";
        return outcome.windows > 1 ? "no step repeated often enough to be told"
                                   : "it ended within the first window, before steps were counted; diagnose looks for them";
    }
    std::string text = outcome.steps_doubt.empty() ? fmt::format("about {:.0f} steps", outcome.steps)
                                                   : fmt::format("cannot tell how many steps: {}", outcome.steps_doubt);
    if (outcome.step_ms)
        text += fmt::format("{} {:.2f} ms each", outcome.steps_doubt.empty() ? "," : "; they took", *outcome.step_ms);
    if (outcome.window_step_ms) text += fmt::format(" ({:.2f} ms while recorded)", *outcome.window_step_ms);
    return text;
}

std::string cost_line(const RecordOutcome& outcome) {
    if (!outcome.cost || !outcome.window_cost) return "cost of recording not measured: too few steps ran without it";
    constexpr double kWorthSaying = 0.01;
    return fmt::format("recording cost {} of the run, {} inside windows", base::print_percent(*outcome.cost),
                       base::print_percent(*outcome.window_cost)) +
           (outcome.waiting_share < kWorthSaying
                ? ""
                : fmt::format(
                      "; up to {} more where the host sets the pace, as CUPTI slows each launch (--finalize-cupti ends that)",
                      base::print_percent(outcome.waiting_share)));
}

}  // namespace

std::string summary_text(const RecordOutcome& outcome) {
    std::string text =
        fmt::format("millrace: recorded {} in {}\n", outcome.run,
                    base::print_duration(std::chrono::nanoseconds{static_cast<std::int64_t>(outcome.seconds * 1e9)}));
    text += fmt::format("  {}\n", steps_line(outcome));
    text += fmt::format("  {} window{}, {} records, {} samples of threads, {}{}\n", outcome.windows,
                        outcome.windows == 1 ? "" : "s", outcome.records, outcome.samples, base::print_bytes(outcome.bytes),
                        outcome.dropped > 0 ? fmt::format("; {} records found no room", outcome.dropped) : "");
    if (outcome.records > 0) text += fmt::format("  {}\n", cost_line(outcome));
    if (outcome.probed == 0 && outcome.notes.empty()) text += kWithoutCuda;
    for (const std::string& note : outcome.notes) text += fmt::format("  note: {}\n", note);
    if (outcome.status != 0) text += fmt::format("  the command ended with status {}, which is handed through\n", outcome.status);
    // Without records of a GPU `diagnose` has no data.
    return outcome.records == 0 ? text : text + fmt::format("  next: millrace diagnose {}\n", outcome.run);
}

}  // namespace millrace::record
