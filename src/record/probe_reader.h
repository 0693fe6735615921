#pragma once
// The mapping of one probed process as `record` sees it: takes records out of its lanes and tells its probe what to do. Whatever
// stands in the mapping may be torn or hostile; nothing in it makes this side read or write elsewhere.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/file.h"
#include "record/probe_mapping.h"
#include "record/window_schedule.h"

namespace millrace::record {

/// Calls of a kind that the probe has counted at a site.
struct SiteCalls {
    CallKind kind = CallKind::kOther;
    std::uint32_t site = 0;
    std::uint64_t calls = 0;
};

/// What a probe says about itself, copied out of the mapping.
struct ProbeReport {
    ProbeFault fault = ProbeFault::kNone;
    std::uint32_t fault_code = 0;
    std::string incumbent;  ///< printable
    ProbeMode mode = ProbeMode::kOff;
    std::uint64_t pulses = 0;
    bool obeyed = false;  ///< it has seen the last order
    std::uint64_t unended = 0, stale = 0, sampled_launches = 0;
    std::array<std::uint64_t, kArgumentFates> arguments{};
    std::uint32_t argument_refusal = 0;
    CuptiPresence presence = CuptiPresence::kThere;
    std::vector<SiteCalls> sites;
    std::uint64_t unplaced = 0;  ///< calls that are in none of them
};

class ProbeReader {
public:
    /// Maps `path`. An error while the probe has not finished setting it up, and for files that cannot be one.
    static base::Result<ProbeReader> open(const io::Path& path);

    [[nodiscard]] ProbeReport report() const;
    /// Hands `order` to the probe, unless it is the one it has.
    void give(const ProbeOrder& order);
    /// Says that `record` lives. From any thread.
    void keep_alive(std::uint64_t now);

    /// Calls `use` with what the lanes hold: whole records, each with its parts behind it, in the order of the lane. At most one
    /// turn of each lane per call.
    void drain(const std::function<void(std::uint16_t lane, std::span<const Record> slots)>& use);

    [[nodiscard]] std::uint64_t lost() const;                         ///< records that found their lane full
    [[nodiscard]] std::uint64_t damaged() const { return damaged_; }  ///< times a lane made no sense and was passed over
    /// The file became too short, or cannot be read any more.
    [[nodiscard]] bool broken() const { return broken_; }

private:
    struct Unmap {
        void operator()(ProbeHeader* header) const;
    };
    ProbeReader(io::FileDescriptor file, ProbeHeader* header) : file_(std::move(file)), header_(header) {}
    void drain_lane(std::uint16_t lane, const std::function<void(std::uint16_t, std::span<const Record>)>& use);
    bool read_slots(std::uint16_t lane, std::uint64_t from, std::size_t count);
    [[nodiscard]] bool still_whole() const;

    io::FileDescriptor file_;
    std::unique_ptr<ProbeHeader, Unmap> header_;
    std::array<std::uint64_t, kLanes> taken_{};  ///< our own count: the mapping's may be scribbled on
    std::vector<Record> slots_;
    ProbeOrder given_;
    bool gave_ = false, broken_ = false;
    std::uint32_t epoch_ = 0;
    std::uint64_t damaged_ = 0;
};

}  // namespace millrace::record
