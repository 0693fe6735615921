#include "record/record_session.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/child_process.h"
#include "base/signal_queue.h"
#include "base/units.h"
#include "record/run_directory.h"
#include "record/sinks.h"
#include "record/trace_keeper.h"
#include "sense/machine.h"
#include "sense/sampler.h"

namespace millrace::record {
namespace {

namespace fs = std::filesystem;
using std::chrono::nanoseconds;

constexpr nanoseconds kHeartbeat = std::chrono::milliseconds{250};
constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
/// Rows of the machine are thinned out to every tenth when they have taken so much.
constexpr double kSampleAllowance = 4e6, kSampleBytesPerSecond = 1500;
constexpr std::uint64_t kThinned = 10;
constexpr const char* kInjection = "CUDA_INJECTION64_PATH";
constexpr const char* kRangeInjection = "NVTX_INJECTION64_PATH";

/// Samples of the machine while a command is recorded. The driver may take a second to open its sensors, so that happens on a
/// thread of its own while the command begins.
class MachineSamples {
public:
    /// Starts at once. `receiver` is called as sense::Sampler says.
    MachineSamples(sense::MachineOptions options, sense::Sampler::Receiver receiver) {
        opening_ = std::thread([this, options = std::move(options), receiver = std::move(receiver)]() mutable {
            machine_ = sense::open_machine(options);
            sampler_.emplace(*machine_, std::chrono::seconds{1}, std::move(receiver));
            facts_.store(&machine_->facts(), std::memory_order_release);
        });
    }
    ~MachineSamples() { stop(); }

    /// Null until the sensors are open.
    [[nodiscard]] const sense::MachineFacts* facts() const { return facts_.load(std::memory_order_acquire); }
    /// Waits for the sensors to be open, and ends.
    void stop() {
        if (opening_.joinable()) opening_.join();
        sampler_->stop();
    }

private:
    std::unique_ptr<sense::Source> machine_;
    std::optional<sense::Sampler> sampler_;
    std::atomic<const sense::MachineFacts*> facts_ = nullptr;
    std::thread opening_;
};

/// Sets what the command's processes need to load the probe; says what stands in the way.
void set_environment(const RecordSettings& settings, const ProbeFolder& folder, RecordOutcome& outcome) {
    const char* other = ::getenv(kInjection);
    if (other != nullptr && *other != '\0' && settings.probe != other) {
        outcome.notes.push_back(fmt::format(
            "{} is set to '{}' and was left so: kernels and calls are not recorded; unset it to record them", kInjection, other));
        return;
    }
    ::setenv(kInjection, settings.probe.c_str(), 1);
    ::setenv(kRangeInjection, settings.probe.c_str(), 0);  // another one keeps its ranges
    ::setenv("MILLRACE_PROBE_DIR", folder.path().c_str(), 1);
}

std::uint64_t size_of(const io::Path& path) {
    std::error_code failed;
    const std::uint64_t size = fs::file_size(path, failed);
    return failed ? 0 : size;
}

/// Waits for the command's end, calling `look` a few times a second; gives its status. Signals that were sent to this process
/// alone go on to the command.
template <class Look>
int wait_for(base::ChildProcess& child, base::SignalQueue& queue, const Look& look) {
    while (true) {
        if (const auto status = child.poll()) return *status;
        const auto event = queue.next(kHeartbeat);
        look();
        if (event && event->number != SIGCHLD && !event->from_terminal) child.send(event->number);
    }
}

RunStatus run_status(const base::ChildProcess& child, int status) {
    if (status == 0) return RunStatus::kFinished;
    return child.ended_by_signal() ? RunStatus::kInterrupted : RunStatus::kFailed;
}

/// Everything between the command's release and its end.
base::Status run_recorded(const RecordSettings& settings, base::ChildProcess& child, base::SignalQueue& queue, RunDirectory& run,
                          ProbeFolder& folder, RecordOutcome& outcome) {
    MILLRACE_LET(trace, TraceWriter::create(run.path() / kTraceName));
    std::vector<std::unique_ptr<Sink>> sinks;
    MILLRACE_SET(sinks.emplace_back(), json_lines_sink(run.samples()));
    SinkThread outputs(std::move(sinks));
    for (const std::string& note : outcome.notes) (void)trace.note(note);

    MILLRACE_TRY(child.release());
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    std::atomic<bool> thinned = false;
    sense::MachineOptions options = sense::machine_options();
    options.root = child.pid();
    MachineSamples machine(options, [&](const sense::Sample& sample) {
        if (thinned && sample.sequence % kThinned != 0) return;
        outputs.post({RowKind::kSample, sample.wall, std::nullopt, points_of(sample)});
    });
    bool described = false;
    // Says in the manifest what the machine is. What fails here is tried again, and reported, when the run is finished.
    const auto describe_once = [&] {
        const sense::MachineFacts* const facts = machine.facts();
        if (described || facts == nullptr) return;
        described = true;
        std::map<std::string, std::string> versions;
        if (!facts->driver.empty()) versions["driver"] = facts->driver;
        (void)run.describe(facts->gpus.empty() ? "cpu" : "cuda:0 " + facts->gpus.front().name, std::move(versions));
    };
    std::optional<CpuSampler> threads;
    if (settings.samples) threads.emplace(child.pid());
    {
        TraceKeeper keeper(folder, trace, run.events(), threads ? &*threads : nullptr, settings.schedule, outcome);
        const int status = wait_for(child, queue, [&] {
            keeper.keep_alive();
            describe_once();
            const std::uint64_t taken = size_of(run.samples());
            keeper.set_other_bytes(taken);
            thinned = static_cast<double>(taken) > kSampleAllowance + kSampleBytesPerSecond * elapsed();
        });
        const double seconds = elapsed();
        if (threads) threads->stop();
        keeper.finish();
        outcome.status = status;
        outcome.seconds = seconds;
        if (threads && threads->dropped() > 0)
            outcome.notes.push_back(fmt::format("{} samples of threads found no room", threads->dropped()));
    }
    machine.stop();
    describe_once();
    outputs.drain();
    for (const std::string& lost : outputs.failed()) outcome.notes.push_back("an output was lost: " + lost);
    return base::ok();
}

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

std::string default_run_name() {
    const std::string name = fmt::format("runs/record-{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
    std::string each = name;
    std::error_code ignored;
    for (int number = 2; number < 1000 && fs::exists(each, ignored); ++number) each = fmt::format("{}-{}", name, number);
    return each;
}

base::Result<RecordOutcome> record_command(const RecordSettings& settings) {
    RecordOutcome outcome;
    outcome.run = settings.out;
    std::error_code failed;
    MILLRACE_LET(folder, ProbeFolder::create(fs::temp_directory_path(failed)));
    set_environment(settings, folder, outcome);
    MILLRACE_LET(child, base::ChildProcess::prepare(settings.command));
    // A reader of the summary that leaves must not end us before the command's status is handed through.
    std::signal(SIGPIPE, SIG_IGN);
    base::SignalQueue queue(kSignals);
    Manifest manifest;
    manifest.command = settings.command;
    MILLRACE_LET(run, RunDirectory::open(outcome.run, RunStart::kNew, std::move(manifest)));
    const base::Status done = run_recorded(settings, child, queue, run, folder, outcome);
    if (!done.ok()) {
        (void)run.finish(RunStatus::kFailed, done.error().exit_status);
        return done.error();
    }
    if (const auto finished = run.finish(run_status(child, outcome.status), outcome.status); !finished.ok())
        outcome.notes.push_back("the manifest was not finished: " + finished.error().text());
    for (const char* name : {kTraceName, "samples.jsonl", "events.jsonl", "manifest.json"})
        outcome.bytes += size_of(run.path() / name);
    return outcome;
}

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
