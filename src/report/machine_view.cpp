#include "report/machine_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/units.h"
#include "report/terminal.h"

namespace millrace::report {
namespace {

constexpr std::size_t kKept = 1024;  ///< wider than any terminal
constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, 8> kLetters = {"_", ".", "-", "=", "+", "*", "#", "@"};

using Value = std::optional<double>;
using Lines = std::vector<std::string>;

bool known(const Value& value) { return value && std::isfinite(*value); }

std::string figure(const Value& value, const char* format, double unit = 1) {
    return known(value) ? fmt::format(fmt::runtime(format), *value / unit) : "-";
}
std::string percent(const Value& value) { return known(value) ? fmt::format("{:5.1f} %", *value) : "    - %"; }

Value ratio(const Value& part, const Value& whole) {
    if (!known(part) || !known(whole) || !(*whole > 0)) return std::nullopt;
    return *part / *whole;
}

/// "12.3/24.0 GiB (51.2 %)"
std::string memory_text(const Value& used, const Value& total) {
    const Value share = ratio(used, total);
    return fmt::format("{}/{} GiB ({} %)", figure(used, "{:.1f}", base::kGiB), figure(total, "{:.1f}", base::kGiB),
                       figure(share, "{:.1f}", 0.01));
}

std::string clock_text(std::chrono::nanoseconds time) {
    return base::print_duration(std::chrono::duration_cast<std::chrono::seconds>(time));
}

void keep(ViewHistory::Values& values, const Value& value) {
    values.push_back(value);
    if (values.size() > kKept) values.pop_front();
}

const char* level(const Value& value, bool utf8) {
    if (!known(value)) return " ";
    const double clamped = std::clamp(*value, 0.0, 100.0);
    return (utf8 ? kBlocks : kLetters)[std::min<std::size_t>(7, static_cast<std::size_t>(clamped / 12.5))];
}

/// Draws the parts of the screen in the detail that fits.
class Painter {
public:
    Painter(const ViewState& state, const ViewSize& size) : state_(state), size_(size) {}

    [[nodiscard]] std::string header() const {
        ViewLine line = start();
        line.add("millrace watch", Tone::kStrong)
            .add(fmt::format("  {}  every {}", state_.facts.host, base::exact_duration(state_.interval)));
        line.add(fmt::format("  {}{}", clock_text(state_.elapsed), state_.left ? ", " + clock_text(*state_.left) + " left" : ""));
        line.add(fmt::format("  {} sample{}, ", state_.samples, state_.samples == 1 ? "" : "s"));
        line.add(fmt::format("{} missed", state_.missed), state_.missed > 0 ? Tone::kCaution : Tone::kPlain);
        return line.text();
    }

    [[nodiscard]] Lines cpu_full() const {
        const sense::CpuReading& cpu = state_.newest.cpu;
        Lines lines;
        ViewLine title = start();
        title.add("CPU", Tone::kStrong).add(fmt::format("  {}", cores_text()));
        title.add(fmt::format("  load {} {} {}", figure(cpu.load_1m, "{:.2f}"), figure(cpu.load_5m, "{:.2f}"),
                              figure(cpu.load_15m, "{:.2f}")));
        if (known(cpu.throttled_percent) && *cpu.throttled_percent > 0)
            title.add(fmt::format("  held back by its quota {:.0f} %", *cpu.throttled_percent), Tone::kCaution);
        lines.push_back(title.text());
        lines.push_back(spark("all", cpu.utilization, state_.history.cpu()));
        ViewLine cores = start();
        cores.add("  cores   ");
        for (const Value& core : cpu.cores) cores.add(level(core, size_.utf8), tone_of(core));
        if (!cpu.cores.empty()) lines.push_back(cores.text());
        lines.push_back(ram());
        if (const std::string tree = tree_text(); !tree.empty()) lines.push_back(start().add(tree).text());
        return lines;
    }

    [[nodiscard]] Lines cpu_short() const {
        ViewLine line = start();
        line.add("CPU", Tone::kStrong).add(percent(state_.newest.cpu.utilization)).add("  RAM ");
        line.add(memory_text(state_.newest.memory.used_bytes, state_.newest.memory.total_bytes));
        line.add(fmt::format("  load {}", figure(state_.newest.cpu.load_1m, "{:.2f}")));
        return {line.text()};
    }

    [[nodiscard]] Lines gpu_full(std::size_t at) const {
        const sense::GpuReading& gpu = reading(at);
        const sense::GpuFacts& facts = state_.facts.gpus[at];
        static const ViewHistory::Gpu kNothing;
        const ViewHistory::Gpu& history = at < state_.history.gpus().size() ? state_.history.gpus()[at] : kNothing;
        Lines lines{gpu_title(at).text()};
        if (gpu.lost) return lines;
        lines.push_back(spark("kernel", gpu.utilization, history.utilization));
        if (facts.has_activity) {
            lines.push_back(spark("SM", gpu.sm_active, history.sm_active));
            lines.push_back(start()
                                .add(fmt::format("  tensor {}  DRAM {}  fp32 {}  occupancy {}", percent(gpu.tensor_active),
                                                 percent(gpu.dram_active), percent(gpu.fp32_active), percent(gpu.sm_occupancy)))
                                .text());
        }
        lines.push_back(meter("VRAM", gpu.memory_used_bytes, gpu.memory_total_bytes, ""));
        ViewLine line = start();
        line.add("  power   ").add(power_text(gpu));
        line.add(fmt::format("  {} C  SM {} MHz  memory {} MHz", figure(gpu.temperature_celsius, "{:.0f}"),
                             figure(gpu.sm_clock_mhz, "{:.0f}"), figure(gpu.memory_clock_mhz, "{:.0f}")));
        lines.push_back(line.text());
        return lines;
    }

    [[nodiscard]] Lines gpu_short(std::size_t at) const {
        const sense::GpuReading& gpu = reading(at);
        ViewLine line = start();
        line.add(fmt::format("GPU {}", at), Tone::kStrong);
        if (gpu.lost) return {line.add("  lost", Tone::kBad).text()};
        line.add(percent(gpu.utilization));
        if (state_.facts.gpus[at].has_activity) line.add("  SM").add(percent(gpu.sm_active));
        line.add("  VRAM ").add(memory_text(gpu.memory_used_bytes, gpu.memory_total_bytes));
        line.add(fmt::format("  {} W  {} C", figure(gpu.power_watts, "{:.0f}"), figure(gpu.temperature_celsius, "{:.0f}")));
        if (gpu.throttle && *gpu.throttle != 0) line.add("  " + sense::throttle_text(*gpu.throttle), Tone::kCaution);
        return {line.text()};
    }

    [[nodiscard]] Lines no_gpu() const {
        ViewLine line = start();
        line.add("GPU", Tone::kStrong).add("  none: ").add(state_.facts.no_gpu.empty() ? "not visible" : state_.facts.no_gpu);
        return {line.text()};
    }

    [[nodiscard]] ViewLine start() const { return {static_cast<std::size_t>(std::max(size_.width, 1)), size_.colour}; }

private:
    [[nodiscard]] const sense::GpuReading& reading(std::size_t at) const {
        static const sense::GpuReading kNothing;
        return at < state_.newest.gpus.size() ? state_.newest.gpus[at] : kNothing;
    }

    [[nodiscard]] std::string cores_text() const {
        const std::string count = fmt::format("{} core{}", state_.facts.cores, state_.facts.cores == 1 ? "" : "s");
        return state_.facts.cpu_name.empty() ? count : state_.facts.cpu_name + ", " + count;
    }

    [[nodiscard]] ViewLine gpu_title(std::size_t at) const {
        const sense::GpuReading& gpu = reading(at);
        ViewLine line = start();
        line.add(fmt::format("GPU {}", at), Tone::kStrong).add("  " + state_.facts.gpus[at].name);
        if (gpu.lost) return line.add("  lost: it stopped answering", Tone::kBad);
        if (!gpu.throttle) return line.add("  throttle -");
        if (*gpu.throttle == 0) return line.add("  not throttled");
        return line.add("  throttled: " + sense::throttle_text(*gpu.throttle), Tone::kCaution);
    }

    [[nodiscard]] static Tone tone_of(const Value& value) {
        if (!known(value)) return Tone::kFaint;
        return *value > 90 ? Tone::kBad : *value > 50 ? Tone::kCaution : Tone::kGood;
    }

    [[nodiscard]] std::string spark(const char* name, const Value& newest, const ViewHistory::Values& values) const {
        ViewLine line = start();
        line.add(fmt::format("  {:<7}{} ", name, percent(newest)));
        return line.add(sparkline(values, line.room(), size_.utf8), Tone::kGood).text();
    }

    [[nodiscard]] std::string meter(const char* name, const Value& used, const Value& total, const std::string& rest) const {
        ViewLine line = start();
        const std::string figures = " " + memory_text(used, total) + rest;
        line.add(fmt::format("  {:<7} ", name));
        if (line.room() > figures.size() + 6)
            line.add(bar(ratio(used, total), std::min<std::size_t>(line.room() - figures.size(), 32), size_.utf8));
        return line.add(figures).text();
    }

    [[nodiscard]] std::string ram() const {
        const sense::MemoryReading& memory = state_.newest.memory;
        return meter("RAM", memory.used_bytes, memory.total_bytes,
                     fmt::format("  swap {}/{} GiB", figure(memory.swap_used_bytes, "{:.1f}", base::kGiB),
                                 figure(memory.swap_total_bytes, "{:.1f}", base::kGiB)));
    }

    /// Empty when no process tree is watched.
    [[nodiscard]] std::string tree_text() const {
        const sense::Sample& now = state_.newest;
        if (!now.process.count && !now.cpu.process_utilization && !now.memory.process_bytes) return {};
        return fmt::format("  tree    {} % of a core, {} GiB, {} processes, {} threads, disk {} read {} written MiB/s",
                           figure(now.cpu.process_utilization, "{:.0f}"), figure(now.memory.process_bytes, "{:.1f}", base::kGiB),
                           figure(now.process.count, "{:.0f}"), figure(now.process.threads, "{:.0f}"),
                           figure(now.disk.read_bytes_per_second, "{:.1f}", base::kMiB),
                           figure(now.disk.write_bytes_per_second, "{:.1f}", base::kMiB));
    }

    [[nodiscard]] static std::string power_text(const sense::GpuReading& gpu) {
        const Value share = ratio(gpu.power_watts, gpu.power_limit_watts);
        return fmt::format("{}/{} W ({} %){}", figure(gpu.power_watts, "{:.0f}"), figure(gpu.power_limit_watts, "{:.0f}"),
                           figure(share, "{:.0f}", 0.01), gpu.power_implausible ? " implausible reading" : "");
    }

    const ViewState& state_;
    const ViewSize& size_;
};

void append(Lines& lines, const Lines& more) { lines.insert(lines.end(), more.begin(), more.end()); }

Lines painted(const Painter& painter, const ViewState& state, bool full_cpu, bool full_gpus) {
    Lines lines{painter.header()};
    for (std::size_t at = 0; at < state.facts.gpus.size(); ++at)
        append(lines, full_gpus ? painter.gpu_full(at) : painter.gpu_short(at));
    if (state.facts.gpus.empty()) append(lines, painter.no_gpu());
    append(lines, full_cpu ? painter.cpu_full() : painter.cpu_short());
    return lines;
}

}  // namespace

void ViewHistory::add(const sense::Sample& sample) {
    keep(cpu_, sample.cpu.utilization);
    if (gpus_.size() < sample.gpus.size()) gpus_.resize(sample.gpus.size());
    for (std::size_t at = 0; at < sample.gpus.size(); ++at) {
        keep(gpus_[at].utilization, sample.gpus[at].utilization);
        keep(gpus_[at].sm_active, sample.gpus[at].sm_active);
    }
}

std::string sparkline(const ViewHistory::Values& values, std::size_t width, bool utf8) {
    std::string text;
    for (std::size_t at = values.size() - std::min(values.size(), width); at < values.size(); ++at)
        text += level(values[at], utf8);
    return text;
}

std::string bar(const std::optional<double>& share, std::size_t width, bool utf8) {
    if (width < 3) return {};
    const std::size_t inner = width - 2;
    std::string text = "[";
    if (!known(share)) {
        text += std::string(inner / 2, ' ') + "-" + std::string(inner - inner / 2 - 1, ' ');
    } else {
        const auto filled = static_cast<std::size_t>(std::lround(std::clamp(*share, 0.0, 1.0) * static_cast<double>(inner)));
        for (std::size_t at = 0; at < inner; ++at) text += at < filled ? (utf8 ? "█" : "#") : (utf8 ? "░" : "-");
    }
    return text + "]";
}

std::vector<std::string> machine_view(const ViewState& state, const ViewSize& size) {
    const Painter painter(state, size);
    const auto height = static_cast<std::size_t>(std::max(size.height, 1));
    Lines lines;
    for (const auto& [full_cpu, full_gpus] :
         {std::pair{true, true}, std::pair{false, true}, std::pair{true, false}, std::pair{false, false}}) {
        lines = painted(painter, state, full_cpu, full_gpus);
        if (lines.size() > height) continue;
        if (lines.size() < height)
            lines.push_back(painter.start().add("Ctrl-C ends the watch and sums it up", Tone::kFaint).text());
        return lines;
    }
    const std::size_t hidden = lines.size() - height + 1;
    lines.resize(height);
    lines.back() = painter.start().add(fmt::format("{} more lines in a taller window", hidden), Tone::kFaint).text();
    return lines;
}

}  // namespace millrace::report
