#include "sense/cgroup.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/split.h"

namespace millrace::sense {
namespace {

bool exists(const std::string& path) {
    std::error_code failed;
    return std::filesystem::exists(path, failed);
}

/// The folders from mount + path up to the mount. A ".." would lead out of the mount: not ours, so the mount it is.
std::vector<std::string> folders_up(const std::string& mount, std::string_view path) {
    std::vector<std::string> folders;
    if (path.find("..") == std::string_view::npos && exists(mount + std::string(path))) {
        while (path.size() > 1) {
            folders.push_back(mount + std::string(path));
            path = path.substr(0, path.rfind('/'));
        }
    }
    folders.push_back(mount);
    return folders;
}

double or_zero(std::optional<std::uint64_t> count) { return static_cast<double>(count.value_or(0)); }

}  // namespace

CgroupFolders find_cgroup(std::string_view membership, const std::string& sys, std::string_view controller) {
    const std::string root = sys + "/fs/cgroup";
    std::string_view line, unified;
    bool has_unified = false;
    while (next_line(membership, line)) {
        const std::size_t first = line.find(':');
        if (first == std::string_view::npos) continue;
        const std::size_t second = line.find(':', first + 1);
        if (second == std::string_view::npos) continue;
        const std::string_view list = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
        if (list.empty()) {
            unified = path;
            has_unified = true;
        } else if (const auto names = base::split(list, ','); std::ranges::find(names, controller) != names.end()) {
            for (const std::string& mount : {root + "/" + std::string(controller), root + "/" + std::string(list)})
                if (exists(mount)) return {.version2 = false, .folders = folders_up(mount, path)};
        }
    }
    if (!has_unified) return {};
    for (const std::string& mount : {root, root + "/unified"})
        if (exists(mount + "/cgroup.controllers")) return {.version2 = true, .folders = folders_up(mount, unified)};
    return {};
}

CgroupMemory::CgroupMemory(const CgroupFolders& where) {
    const char* limit = where.version2 ? "/memory.max" : "/memory.limit_in_bytes";
    const char* usage = where.version2 ? "/memory.current" : "/memory.usage_in_bytes";
    for (const std::string& folder : where.folders)
        if (exists(folder + limit))
            groups_.push_back({ProcFile(folder + limit), ProcFile(folder + usage), ProcFile(folder + "/memory.stat")});
}

CgroupMemory::Reading CgroupMemory::read(double machine_total, std::string& buffer) {
    Reading reading;
    for (Group& group : groups_) {
        const auto limit_text = group.limit.read(buffer);
        if (!limit_text) continue;
        std::string_view rest = *limit_text;
        const auto limit = to_count(next_word(rest));  // "max" is no count; version 1 writes a huge number instead
        if (!limit || static_cast<double>(*limit) >= machine_total) continue;
        const auto limit_bytes = static_cast<double>(*limit);
        const bool smallest = !reading.limit_bytes || limit_bytes < *reading.limit_bytes;
        if (smallest) {
            reading.limit_bytes = limit_bytes;
            reading.file_bytes.reset();
        }
        const auto usage_text = group.usage.read(buffer);
        if (!usage_text) continue;
        rest = *usage_text;
        const auto usage = to_count(next_word(rest));
        if (!usage) continue;
        double reclaimable = 0;
        if (const auto stat = group.stat.read(buffer)) {
            // Version 1 counts the groups below under names of their own; version 2 always does.
            const bool hierarchical = find_count(*stat, "total_inactive_file").has_value();
            const std::string prefix = hierarchical ? "total_" : "";
            reclaimable =
                or_zero(find_count(*stat, prefix + "inactive_file")) + or_zero(find_count(*stat, prefix + "active_file"));
            if (smallest) reading.file_bytes = reclaimable;
        }
        const double used = std::max(static_cast<double>(*usage) - reclaimable, 0.0);
        const double left = std::max(limit_bytes - used, 0.0);
        reading.available_bytes = std::min(reading.available_bytes.value_or(left), left);
    }
    return reading;
}

CgroupCpu::CgroupCpu(const CgroupFolders& where) : version2_(where.version2) {
    const char* quota = version2_ ? "/cpu.max" : "/cpu.cfs_quota_us";
    for (const std::string& folder : where.folders)
        if (exists(folder + quota))
            groups_.push_back({ProcFile(folder + quota), ProcFile(version2_ ? "" : folder + "/cpu.cfs_period_us"),
                               ProcFile(folder + "/cpu.stat")});
}

std::optional<CgroupCpu::Quota> CgroupCpu::quota_of(Group& group, std::string& buffer) const {
    const auto text = group.quota.read(buffer);
    if (!text) return std::nullopt;
    std::string_view rest = *text;
    if (const std::size_t end = rest.find('\n'); end != std::string_view::npos) rest = rest.substr(0, end);
    const auto quota = to_count(next_word(rest));  // neither "max" nor "-1" is a count
    auto period = to_count(next_word(rest));
    if (!version2_) {
        const auto period_text = group.period.read(buffer);
        if (!period_text) return std::nullopt;
        rest = *period_text;
        period = to_count(next_word(rest));
    }
    if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
    return Quota{static_cast<double>(*quota) / static_cast<double>(*period), static_cast<double>(*period) * 1e-6};
}

CgroupCpu::Reading CgroupCpu::read(std::chrono::nanoseconds now, std::string& buffer) {
    Reading reading;
    std::optional<Quota> smallest;
    std::size_t where = 0;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        const std::optional<Quota> quota = quota_of(groups_[i], buffer);
        if (!quota || (smallest && quota->cores >= smallest->cores)) continue;
        smallest = quota;
        where = i;
    }
    const std::optional<Before> before = std::exchange(before_, std::nullopt);
    if (!smallest) return reading;
    reading.limit_cores = smallest->cores;
    const auto stat = groups_[where].stat.read(buffer);
    const auto throttled = stat ? find_count(*stat, "nr_throttled") : std::nullopt;
    if (!throttled) return reading;
    before_ = Before{where, *throttled, now};
    if (!before || before->group != where || *throttled < before->throttled || now <= before->time) return reading;
    // Periods in which the quota ran out, not the kernel's "throttled time": that sums over cores and may exceed the clock.
    const double seconds = std::chrono::duration<double>(now - before->time).count();
    const double held_back = static_cast<double>(*throttled - before->throttled) * smallest->period_seconds;
    reading.throttled_percent = std::min(100.0, 100.0 * held_back / seconds);
    return reading;
}

}  // namespace millrace::sense
