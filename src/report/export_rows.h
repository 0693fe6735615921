#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/timeline/timeline.h"

namespace millrace::report {

/// Which row of a viewer each part of a timeline stands in, and what is joined by an arrow.
class ExportRows {
public:
    explicit ExportRows(const diagnose::Timeline& timeline);

    /// (process, thread) of everything the host did.
    [[nodiscard]] const std::set<std::pair<std::uint32_t, std::uint32_t>>& host() const { return host_; }
    [[nodiscard]] const std::set<std::uint32_t>& devices() const { return devices_; }
    /// Names of (device, row).
    [[nodiscard]] const std::map<std::pair<std::uint32_t, std::uint64_t>, std::string>& device_rows() const { return names_; }
    [[nodiscard]] std::uint64_t row_of_work(std::size_t number) const { return rows_[number]; }
    [[nodiscard]] bool several_processes() const { return several_; }
    /// Whether a call and work of that correlation are both there.
    [[nodiscard]] bool joined(std::uint32_t process, std::uint32_t correlation) const;

private:
    void place_work(const diagnose::Timeline& timeline);
    void join(const diagnose::Timeline& timeline);

    std::set<std::pair<std::uint32_t, std::uint32_t>> host_;
    std::set<std::uint32_t> devices_;
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::string> names_;
    std::vector<std::uint64_t> rows_, joined_;
    bool several_ = false;
};

}  // namespace millrace::report
