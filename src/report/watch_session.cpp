#include "report/watch_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/signal_queue.h"
#include "io/file.h"
#include "record/machine_line.h"
#include "record/sinks.h"
#include "report/machine_view.h"
#include "report/terminal.h"
#include "report/watch_summary.h"
#include "sense/sampler.h"

namespace millrace::report {
namespace {

using std::chrono::nanoseconds;
using Sinks = std::vector<std::unique_ptr<record::Sink>>;

constexpr nanoseconds kShortestRedraw = std::chrono::milliseconds{100}, kLongestRedraw = std::chrono::seconds{1};
constexpr nanoseconds kShortestLine = std::chrono::milliseconds{990};  ///< a second, with room for jitter
constexpr nanoseconds kLastTickRoom = std::chrono::milliseconds{20};
constexpr nanoseconds kPatience = std::chrono::milliseconds{500};  ///< wrappers such as timeout(1) send their signal twice

double cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The plot replaces a file as a whole, so it is the folder that must be writable.
base::Status check_plot(const std::string& path) {
    MILLRACE_TRY(io::check_replaceable(path));
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0)
        return base::Error{std::string("cannot write the plot there: ") + std::strerror(errno), path};
    return base::ok();
}

/// Opens every output the settings ask for, or says which one cannot be written. The plot is written at the end; here its folder
/// is looked at.
base::Result<Sinks> open_outputs(const WatchSettings& settings, const sense::MachineFacts& facts) {
    Sinks sinks;
    const io::NamedFile files[] = {{"--csv", settings.csv},
                                   {"--monitor-csv", settings.monitor_csv},
                                   {"--plot", settings.plot},
                                   {"--prometheus-file", settings.prometheus_file}};
    MILLRACE_TRY(io::check_apart(files));
    if (!settings.plot.empty()) MILLRACE_TRY(check_plot(settings.plot));
    if (!settings.csv.empty()) MILLRACE_SET(sinks.emplace_back(), record::csv_sink(settings.csv, facts));
    if (!settings.monitor_csv.empty()) MILLRACE_SET(sinks.emplace_back(), record::monitor_csv_sink(settings.monitor_csv, facts));
    if (!settings.tensorboard.empty()) MILLRACE_SET(sinks.emplace_back(), record::tensorboard_sink(settings.tensorboard));
    if (!settings.prometheus_file.empty())
        MILLRACE_SET(sinks.emplace_back(), record::prometheus_file_sink(settings.prometheus_file, facts));
    if (settings.prometheus_port)
        MILLRACE_SET(sinks.emplace_back(),
                     record::prometheus_port_sink(settings.prometheus_address, *settings.prometheus_port, facts));
    if (settings.json) MILLRACE_SET(sinks.emplace_back(), record::json_lines_sink("-"));
    return sinks;
}

/// The machine without what the reader knows of our own process, which is not what is watched.
class MachineAlone final : public sense::Source {
public:
    explicit MachineAlone(sense::Source& machine) : machine_(machine) {}
    [[nodiscard]] const sense::MachineFacts& facts() const override { return machine_.facts(); }
    void read(nanoseconds now, sense::Sample& sample) noexcept override {
        machine_.read(now, sample);
        sample.cpu.process_utilization.reset();
        sample.memory.process_bytes.reset();
        sample.disk = {};
        sample.process = {};
        for (sense::GpuReading& gpu : sample.gpus) gpu.process_memory_bytes.reset();
    }

private:
    sense::Source& machine_;
};

/// How the watch shows itself while it goes on.
enum class Display { kNothing, kLines, kScreen };

class Session {
public:
    Session(const WatchSettings& settings, std::optional<base::ChildProcess> child)
        : settings_(settings),
          child_(std::move(child)),
          people_(settings.json ? stderr : stdout),
          display_(chosen_display()),
          queue_(caught_signals()) {}

    base::Result<int> run() {
        sense::MachineOptions options = sense::machine_options();
        if (child_) options.root = child_->pid();
        const std::unique_ptr<sense::Source> machine = sense::open_machine(options);
        MILLRACE_LET(sinks, open_outputs(settings_, machine->facts()));
        announce(sinks);
        record_.emplace(machine->facts(), settings_.interval);
        state_.facts = machine->facts();
        state_.interval = settings_.interval;
        {
            record::SinkThread outputs(std::move(sinks));
            MILLRACE_TRY(watch_until_over(*machine, outputs));
            while_heeding_signals([&] { outputs.drain(); });
            outcome_.dropped_rows = outputs.dropped();
            outcome_.lost_outputs = outputs.failed();
        }
        write_plot();
        if (child_) outcome_.command_status = wait_for_command();
        while_heeding_signals([this] { print_summary(); });
        return exit_status();
    }

private:
    [[nodiscard]] Display chosen_display() const {
        if (child_ || settings_.quiet) return Display::kNothing;
        const char* kind = std::getenv("TERM");
        const bool screen = isatty(fileno(people_)) != 0 && kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
        return screen ? Display::kScreen : Display::kLines;
    }

    [[nodiscard]] std::vector<int> caught_signals() const {
        std::vector<int> signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD};
        if (display_ == Display::kScreen) signals.insert(signals.end(), {SIGWINCH, SIGTSTP});
        return signals;
    }

    void announce(const Sinks& sinks) const {
        if (!settings_.prometheus_port || settings_.quiet) return;
        for (const auto& sink : sinks)
            if (sink->name().find("http") != std::string::npos) fmt::print(stderr, "millrace: {}\n", sink->name());
    }

    base::Status watch_until_over(sense::Source& machine, record::SinkThread& outputs) {
        MachineAlone alone(machine);
        sense::Source& source = child_ ? machine : alone;
        start_ = clock_.now();
        const double cpu_before = cpu_seconds();
        sense::Sampler sampler(source, settings_.interval, [&](const sense::Sample& sample) { receive(sample, outputs); });
        if (child_) MILLRACE_TRY(child_->release());
        show_until_over();
        sampler.stop();
        outcome_.seconds = std::chrono::duration<double>(clock_.now() - start_).count();
        const sense::Sampler::Costs costs = sampler.costs();
        outcome_.samples = costs.samples;
        outcome_.missed = costs.missed;
        outcome_.sampler_cpu_seconds = costs.cpu_seconds;
        outcome_.program_cpu_seconds = cpu_seconds() - cpu_before;
        outcome_.command = settings_.command;
        return base::ok();
    }

    /// On the sampler's thread.
    void receive(const sense::Sample& sample, record::SinkThread& outputs) {
        outputs.post({record::RowKind::kSample, sample.wall, std::nullopt, record::points_of(sample)});
        const std::lock_guard lock(mutex_);
        record_->add(sample);
        if (display_ == Display::kNothing) return;
        state_.newest = sample;
        state_.history.add(sample);
        state_.samples = record_->summary().samples();
        state_.missed = record_->missed();
        fresh_ = true;
        queue_.wake();
    }

    void show_until_over() {
        std::optional<TerminalScreen> screen;
        if (display_ == Display::kScreen) screen.emplace(fileno(people_));
        while (true) {
            if (child_ && child_->poll()) return;
            const std::optional<nanoseconds> left = time_left();
            if (left && *left <= nanoseconds{0}) return;
            if (!show(screen)) return;
            const auto event = queue_.next(next_wake(left));
            if (!event) continue;
            if (event->number == SIGTSTP && screen) {
                screen->leave();
                raise(SIGSTOP);
            }
            if (is_request_to_end(event->number)) {
                if (!child_) {
                    signal_ = event->number;
                    return;
                }
                pass_on(*event);
            }
        }
    }

    [[nodiscard]] static bool is_request_to_end(int number) {
        return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
    }

    void pass_on(const base::SignalEvent& event) {
        if (!event.from_terminal) child_->send(event.number);
    }

    /// The sample that falls on the end belongs to the watch: it tells of the last interval.
    [[nodiscard]] std::optional<nanoseconds> time_left() const {
        if (!settings_.duration) return std::nullopt;
        return start_ + *settings_.duration + std::min(settings_.interval / 4, kLastTickRoom) - clock_.now();
    }

    [[nodiscard]] std::optional<nanoseconds> next_wake(const std::optional<nanoseconds>& left) const {
        if (display_ != Display::kScreen) return left;
        return left ? std::min(*left, kLongestRedraw) : kLongestRedraw;
    }

    /// False when the reader of the output is gone.
    bool show(std::optional<TerminalScreen>& screen) {
        if (display_ == Display::kLines) return print_line();
        if (!screen) return true;
        const nanoseconds now = clock_.now();
        if (now - last_shown_ < kShortestRedraw) return true;
        last_shown_ = now;
        const TerminalSize terminal = terminal_size(fileno(people_));
        const ViewSize size{terminal.width, terminal.height - 1,
                            utf8_locale(std::getenv("LC_ALL"), std::getenv("LC_CTYPE"), std::getenv("LANG")),
                            base::colour_wanted(true, std::getenv("NO_COLOR"))};
        std::unique_lock lock(mutex_);
        ViewState state = state_;
        lock.unlock();
        state.elapsed = now - start_;
        if (settings_.duration) state.left = std::max(nanoseconds{0}, *settings_.duration - state.elapsed);
        return screen->draw(machine_view(state, size));
    }

    bool print_line() {
        std::string line;
        {
            // Printed outside the lock: a reader that does not read must not hold up the sampler.
            const std::lock_guard lock(mutex_);
            if (!std::exchange(fresh_, false)) return true;
            if (last_shown_ != nanoseconds{0} && state_.newest.time - last_shown_ < kShortestLine) return true;
            last_shown_ = state_.newest.time;
            line = record::machine_line(record::machine_line_values(state_.newest)) + "\n";
        }
        // A pipe that is full takes no line; waiting for it would make us deaf to signals.
        if (pollfd ready{fileno(people_), POLLOUT, 0}; poll(&ready, 1, 0) == 0) return true;
        std::fputs(line.c_str(), people_);
        return std::fflush(people_) == 0;
    }

    /// Runs what may wait for a reader that does not read. The command still gets its signals meanwhile; without one that runs, a
    /// request to end that comes a while after the watch was over (not the same one twice) ends us with what was written so far.
    template <class Work>
    void while_heeding_signals(const Work& work) {
        std::atomic<bool> done = false;
        std::thread worker([&] {
            work();
            done = true;
            queue_.wake();
        });
        const nanoseconds begin = clock_.now();
        while (!done) {
            const auto event = queue_.next(std::nullopt);
            if (!event || !is_request_to_end(event->number)) continue;
            if (child_ && !child_->poll())
                pass_on(*event);
            else if (clock_.now() - begin > kPatience)
                _exit(child_ ? child_->wait() : 128 + event->number);
        }
        worker.join();
    }

    int wait_for_command() {
        while (true) {
            if (const auto status = child_->poll()) return *status;
            if (const auto event = queue_.next(std::nullopt); event && is_request_to_end(event->number)) pass_on(*event);
        }
    }

    void write_plot() {
        if (settings_.plot.empty()) return;
        const std::string subject = fmt::format("{}", fmt::join(settings_.command, " "));
        const auto written = io::write_atomically(settings_.plot, std::string_view(plot_svg(*record_, subject)));
        if (!written.ok()) outcome_.lost_outputs.push_back("plot " + written.error().text());
    }

    void print_summary() const {
        std::FILE* words = child_ ? stderr : people_;
        std::fputs(summary_text(*record_, outcome_).c_str(), words);
        std::fflush(words);
        if (!settings_.json) return;
        std::fputs((summary_json(*record_, outcome_) + "\n").c_str(), stdout);
        std::fflush(stdout);
    }

    [[nodiscard]] int exit_status() const {
        if (outcome_.command_status) return *outcome_.command_status;
        if (signal_ != 0 && signal_ != SIGINT) return 128 + signal_;
        return outcome_.lost_outputs.empty() ? 0 : 2;
    }

    const WatchSettings& settings_;
    std::optional<base::ChildProcess> child_;
    std::FILE* const people_;  ///< where words for people go while watching
    const Display display_;
    base::SignalQueue queue_;
    base::SteadyClock clock_;
    nanoseconds start_{}, last_shown_{};
    WatchOutcome outcome_;
    int signal_ = 0;    ///< that ended the watch
    std::mutex mutex_;  ///< guards what follows while the sampler runs
    std::optional<WatchRecord> record_;
    ViewState state_;
    bool fresh_ = false;  ///< a sample that was not shown yet
};

}  // namespace

base::Result<int> watch(const WatchSettings& settings) {
    std::optional<base::ChildProcess> child;
    if (!settings.command.empty()) {
        MILLRACE_LET(prepared, base::ChildProcess::prepare(settings.command, {.out = settings.json ? STDERR_FILENO : -1}));
        child = std::move(prepared);
    }
    // A reader of our output that leaves is noticed by the failed write; it must not end us, or the command's status is lost.
    std::signal(SIGPIPE, SIG_IGN);
    return Session(settings, std::move(child)).run();
}

}  // namespace millrace::report
