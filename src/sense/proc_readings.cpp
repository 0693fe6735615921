#include "sense/proc_readings.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace millrace::sense {
namespace {

constexpr int kMostCores = 65536;  // a list that names more is garbage

std::optional<std::string_view> after_colon(std::string_view line, std::string_view key) {
    if (!line.starts_with(key)) return std::nullopt;
    line.remove_prefix(key.size());
    const std::size_t colon = line.find_first_not_of(" \t");
    if (colon == std::string_view::npos || line[colon] != ':') return std::nullopt;
    line.remove_prefix(colon + 1);
    const std::size_t begin = line.find_first_not_of(" \t");
    return begin == std::string_view::npos ? std::string_view{} : line.substr(begin);
}

/// The number of a line "cpu12 ..."; absent for the sum over all cores and for other lines. Leaves the rest in `line`.
std::optional<int> core_of(std::string_view& line) {
    std::string_view word = next_word(line);
    if (!word.starts_with("cpu")) return std::nullopt;
    word.remove_prefix(3);
    const auto number = to_count(word);
    if (!number || *number >= kMostCores) return std::nullopt;
    return static_cast<int>(*number);
}

std::vector<int> online_cores(const std::string& proc) {
    std::string buffer;
    ProcFile stat(proc + "/stat", false);
    std::vector<int> cores;
    if (const auto text = stat.read(buffer)) {
        std::string_view rest = *text, line;
        while (next_line(rest, line))
            if (const auto core = core_of(line)) cores.push_back(*core);
    }
    std::sort(cores.begin(), cores.end());
    cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
    return cores;
}

std::vector<int> allowed_cores(const std::string& proc, const std::string& sys) {
    std::string buffer;
    if (const auto text = ProcFile(proc + "/self/status", false).read(buffer)) {
        std::string_view rest = *text, line;
        while (next_line(rest, line))
            if (const auto list = after_colon(line, "Cpus_allowed_list")) return parse_core_list(*list);
    }
    const auto membership = ProcFile(proc + "/self/cgroup", false).read(buffer);
    if (!membership) return {};
    const CgroupFolders where = find_cgroup(std::string(*membership), sys, "cpuset");
    for (const std::string& folder : where.folders)
        for (const char* name : {"/cpuset.cpus.effective", "/cpuset.effective_cpus", "/cpuset.cpus"})
            if (const auto text = ProcFile(folder + name, false).read(buffer)) {
                std::vector<int> cores = parse_core_list(text->substr(0, text->find('\n')));
                if (!cores.empty()) return cores;
            }
    return {};
}

/// ARM kernels print numbers instead of a name; those of the cores one meets in servers and boards.
std::string arm_name(std::string_view implementer, std::string_view part) {
    constexpr std::pair<std::string_view, const char*> kParts[] = {
        {"0xd03", "Cortex-A53"},  {"0xd08", "Cortex-A72"},   {"0xd0b", "Cortex-A76"},  {"0xd0c", "Neoverse-N1"},
        {"0xd40", "Neoverse-V1"}, {"0xd42", "Cortex-A78AE"}, {"0xd49", "Neoverse-N2"}, {"0xd4f", "Neoverse-V2"},
        {"0xd84", "Neoverse-V3"}, {"0xd8e", "Neoverse-N3"}};
    if (implementer == "0x41")
        for (const auto& [number, name] : kParts)
            if (part == number) return name;
    return "ARM implementer " + std::string(implementer) + " part " + std::string(part);
}

std::optional<double> percent_busy(const std::array<std::uint64_t, 8>& before, const std::array<std::uint64_t, 8>& now,
                                   double& busy_sum, double& total_sum) {
    double busy = 0, total = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
        // Idle and iowait are known to step back by a tick; that is no time at all.
        const double ticks = now[i] > before[i] ? static_cast<double>(now[i] - before[i]) : 0;
        total += ticks;
        if (i != 3 && i != 4) busy += ticks;
    }
    if (total <= 0) return std::nullopt;
    busy_sum += busy;
    total_sum += total;
    return 100.0 * busy / total;
}

}  // namespace

std::vector<int> parse_core_list(std::string_view text) {
    std::vector<int> cores;
    const auto take_number = [&text]() -> std::optional<int> {
        int number = 0;
        const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (failed != std::errc{} || number < 0 || number >= kMostCores) return std::nullopt;
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
        return number;
    };
    const auto take_sign = [&text](char sign) {
        const bool there = text.starts_with(sign);
        if (there) text.remove_prefix(1);
        return there;
    };
    do {
        const std::optional<int> first = take_number();
        if (!first) break;
        const std::optional<int> last = take_sign('-') ? take_number() : first;
        if (!last) break;
        for (int core = *first; core <= *last; ++core) cores.push_back(core);
    } while (take_sign(','));
    std::sort(cores.begin(), cores.end());
    cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
    return cores;
}

std::vector<int> usable_cores(const std::string& proc, const std::string& sys) {
    std::vector<int> online = online_cores(proc);
    const std::vector<int> allowed = allowed_cores(proc, sys);
    if (allowed.empty()) return online;
    std::vector<int> both;
    std::set_intersection(online.begin(), online.end(), allowed.begin(), allowed.end(), std::back_inserter(both));
    return both.empty() ? online : both;
}

std::string processor_name(const std::string& proc) {
    std::string buffer;
    ProcFile file(proc + "/cpuinfo", false);
    const auto text = file.read(buffer);
    if (!text) return {};
    std::string_view rest = *text, line, implementer, part;
    while (next_line(rest, line)) {
        for (const char* key : {"model name", "Processor", "cpu model"})
            if (const auto name = after_colon(line, key); name && !name->empty()) return std::string(*name);
        if (const auto value = after_colon(line, "CPU implementer")) implementer = *value;
        if (const auto value = after_colon(line, "CPU part")) part = *value;
    }
    return implementer.empty() || part.empty() ? std::string{} : arm_name(implementer, part);
}

ProcCpu::ProcCpu(const std::string& proc, const std::string& sys, std::vector<int> cores)
    : cores_(std::move(cores)),
      before_(cores_.size()),
      now_(cores_.size()),
      stat_(proc + "/stat"),
      load_(proc + "/loadavg"),
      pressure_(proc + "/pressure/cpu") {
    if (const auto membership = ProcFile(proc + "/self/cgroup", false).read(buffer_))
        group_ = CgroupCpu(find_cgroup(std::string(*membership), sys, "cpu"));
}

void ProcCpu::read_stat(CpuReading& reading) {
    std::fill(now_.begin(), now_.end(), std::nullopt);
    if (const auto text = stat_.read(buffer_)) {
        std::string_view rest = *text, line;
        while (next_line(rest, line)) {
            if (!line.starts_with("cpu")) break;  // the cores come first; the interrupts behind them are long
            const auto core = core_of(line);
            if (!core) continue;
            const auto place = std::lower_bound(cores_.begin(), cores_.end(), *core);
            if (place == cores_.end() || *place != *core) continue;
            Ticks ticks{};
            bool whole = true;
            for (std::size_t i = 0; i < ticks.size() && whole; ++i) {
                const auto count = to_count(next_word(line));
                whole = count.has_value();
                ticks[i] = count.value_or(0);
            }
            if (whole) now_[static_cast<std::size_t>(place - cores_.begin())] = ticks;
        }
    }
    double busy = 0, total = 0;
    for (std::size_t i = 0; i < cores_.size(); ++i)
        if (before_[i] && now_[i]) reading.cores[i] = percent_busy(*before_[i], *now_[i], busy, total);
    if (total > 0) reading.utilization = 100.0 * busy / total;
    std::swap(before_, now_);
}

void ProcCpu::read(std::chrono::nanoseconds now, CpuReading& reading) {
    std::vector<std::optional<double>> cores = std::move(reading.cores);
    reading = CpuReading{};
    cores.assign(cores_.size(), std::nullopt);
    reading.cores = std::move(cores);
    read_stat(reading);
    if (const auto text = load_.read(buffer_)) {
        std::string_view rest = *text;
        reading.load_1m = to_number(next_word(rest));
        reading.load_5m = to_number(next_word(rest));
        reading.load_15m = to_number(next_word(rest));
    }
    if (const auto text = pressure_.read(buffer_)) {
        std::string_view rest = *text;
        if (next_word(rest) == "some") {
            std::string_view average = next_word(rest);
            if (average.starts_with("avg10=")) reading.pressure_percent = to_number(average.substr(6));
        }
    }
    const CgroupCpu::Reading group = group_.read(now, buffer_);
    reading.limit_cores = group.limit_cores;
    reading.throttled_percent = group.throttled_percent;
}

ProcMemory::ProcMemory(const std::string& proc, const std::string& sys) : meminfo_(proc + "/meminfo") {
    if (const auto membership = ProcFile(proc + "/self/cgroup", false).read(buffer_))
        group_ = CgroupMemory(find_cgroup(std::string(*membership), sys, "memory"));
}

void ProcMemory::read(MemoryReading& reading) {
    reading = MemoryReading{};
    if (const auto text = meminfo_.read(buffer_)) {
        const auto bytes = [&](std::string_view key) -> std::optional<double> {
            const auto kibibytes = find_count(*text, key);
            return kibibytes ? std::optional(static_cast<double>(*kibibytes) * 1024.0) : std::nullopt;
        };
        reading.total_bytes = bytes("MemTotal");
        reading.available_bytes = bytes("MemAvailable");
        const auto free = bytes("MemFree"), buffers = bytes("Buffers"), cached = bytes("Cached"), shared = bytes("Shmem");
        // Shared memory is counted among the cached pages, but storage does not stand behind it.
        if (cached) reading.page_cache_bytes = std::max(0.0, *cached + buffers.value_or(0) - shared.value_or(0));
        if (!reading.available_bytes && free && reading.page_cache_bytes)  // kernels before 3.14
            reading.available_bytes = *free + *reading.page_cache_bytes;
        const auto swap_total = bytes("SwapTotal"), swap_free = bytes("SwapFree");
        reading.swap_total_bytes = swap_total;
        if (swap_total && swap_free) reading.swap_used_bytes = std::max(0.0, *swap_total - *swap_free);
    }
    const auto machine_total = reading.total_bytes.value_or(std::numeric_limits<double>::max());
    const CgroupMemory::Reading group = group_.read(std::min(machine_total, 0x1p62), buffer_);
    if (group.limit_bytes) {
        reading.limit_bytes = group.limit_bytes;
        reading.total_bytes = group.limit_bytes;
        if (group.available_bytes)
            reading.available_bytes = std::min(reading.available_bytes.value_or(*group.available_bytes), *group.available_bytes);
        else
            reading.available_bytes.reset();
        reading.page_cache_bytes = group.file_bytes;
    }
    if (reading.total_bytes && reading.available_bytes) {
        reading.available_bytes = std::min(*reading.available_bytes, *reading.total_bytes);
        reading.used_bytes = *reading.total_bytes - *reading.available_bytes;
    }
}

}  // namespace millrace::sense
