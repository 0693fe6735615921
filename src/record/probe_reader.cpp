#include "record/probe_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "record/probe_records.h"

namespace millrace::record {
namespace {

constexpr std::size_t kTurn = 1u << 13;  ///< slots read at once
static_assert(kTurn > kMostSlots);

std::string printable(const char* text, std::size_t size) {
    std::string out(text, ::strnlen(text, size));
    for (char& letter : out)
        if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = '?';
    return out;
}

}  // namespace

base::Result<ProbeReader> ProbeReader::open(const io::Path& path) {
    MILLRACE_LET(file, io::open_file(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK));
    struct stat about {};
    if (::fstat(file.get(), &about) != 0) return io::system_error("cannot look at", path, errno);
    if (!S_ISREG(about.st_mode) || about.st_uid != ::geteuid())
        return base::Error{"is no file of a probe: not a regular file of this user", path.string()};
    if (static_cast<std::uint64_t>(about.st_size) < kMappingBytes) return base::Error{"is not set up yet", path.string()};
    void* memory = ::mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) return io::system_error("cannot map", path, errno);
    ProbeReader reader(std::move(file), static_cast<ProbeHeader*>(memory));
    if (reader.header_->state.magic.load(std::memory_order_acquire) != kProbeMagic)
        return base::Error{"is not set up yet, or by another version", path.string()};
    reader.epoch_ = reader.header_->control.epoch.load(std::memory_order_relaxed);
    return reader;
}

void ProbeReader::Unmap::operator()(ProbeHeader* header) const { ::munmap(header, kHeaderBytes); }

/// Touching a page behind the end of a file that became shorter would end this process.
bool ProbeReader::still_whole() const {
    struct stat about {};
    return ::fstat(file_.get(), &about) == 0 && static_cast<std::uint64_t>(about.st_size) >= kHeaderBytes;
}

ProbeReport ProbeReader::report() const {
    ProbeReport report;
    if (broken_ || !still_whole()) return report;
    const ProbeState& state = header_->state;
    report.fault = static_cast<ProbeFault>(state.fault.load(std::memory_order_acquire));
    report.fault_code = state.fault_code.load(std::memory_order_relaxed);
    report.incumbent = printable(state.incumbent, sizeof state.incumbent);
    report.mode = static_cast<ProbeMode>(state.mode.load(std::memory_order_relaxed));
    report.pulses = state.pulses.load(std::memory_order_relaxed);
    report.obeyed = gave_ && state.epoch.load(std::memory_order_acquire) == epoch_;
    report.unended = state.unended.load(std::memory_order_relaxed);
    report.stale = state.stale.load(std::memory_order_relaxed);
    report.sampled_launches = state.sampled_launches.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < kArgumentFates; ++i) report.arguments[i] = state.arguments[i].load(std::memory_order_relaxed);
    report.argument_refusal = state.argument_refusal.load(std::memory_order_relaxed);
    report.presence = static_cast<CuptiPresence>(state.presence.load(std::memory_order_acquire));
    for (const SiteCount& count : state.sites)
        if (const std::uint32_t key = count.key.load(std::memory_order_relaxed); key != 0)
            report.sites.push_back(
                {static_cast<CallKind>(key >> 24), key & 0xffffff, count.calls.load(std::memory_order_relaxed)});
    report.unplaced = state.unplaced.load(std::memory_order_relaxed);
    return report;
}

void ProbeReader::give(const ProbeOrder& order) {
    if (broken_ || (gave_ && order == given_) || !still_whole()) return;
    ProbeControl& control = header_->control;
    control.mode.store(static_cast<std::uint32_t>(order.mode), std::memory_order_relaxed);
    control.pulse_call.store(static_cast<std::uint32_t>(order.pulse_call), std::memory_order_relaxed);
    control.full_calls.store(order.full_calls, std::memory_order_relaxed);
    control.sites_calls.store(order.sites_calls, std::memory_order_relaxed);
    control.pulse_stride.store(order.pulse_stride, std::memory_order_relaxed);
    control.pulse_led.store(order.pulse_led ? 1 : 0, std::memory_order_relaxed);
    control.pulse_site.store(order.pulse_site, std::memory_order_relaxed);
    control.detach.store(order.detach ? 1 : 0, std::memory_order_relaxed);
    control.leads.store(order.leads ? 1 : 0, std::memory_order_relaxed);
    control.epoch.store(++epoch_, std::memory_order_release);
    given_ = order;
    gave_ = true;
}

void ProbeReader::keep_alive(std::uint64_t now) {
    if (still_whole()) header_->control.keeper_time.store(now, std::memory_order_release);
}

std::uint64_t ProbeReader::lost() const {
    std::uint64_t sum = 0;
    if (broken_ || !still_whole()) return sum;
    for (const ProbeLane& lane : header_->lanes) sum += lane.lost.load(std::memory_order_relaxed);
    return sum;
}

void ProbeReader::drain(const std::function<void(std::uint16_t, std::span<const Record>)>& use) {
    if (!still_whole()) broken_ = true;
    for (std::uint16_t lane = 0; lane < kLanes && !broken_; ++lane) drain_lane(lane, use);
}

/// Fills slots_ from the ring; by reading the file rather than a mapping, so that a file that became shorter is an error.
bool ProbeReader::read_slots(std::uint16_t lane, std::uint64_t from, std::size_t count) {
    slots_.resize(count);
    std::size_t done = 0;
    while (done < count) {
        const std::uint64_t slot = (from + done) % kLaneSlots;
        const std::size_t some = std::min<std::size_t>(count - done, kLaneSlots - slot);
        const std::uint64_t place = kHeaderBytes + (std::uint64_t{lane} * kLaneSlots + slot) * sizeof(Record);
        const auto bytes = std::as_writable_bytes(std::span(slots_).subspan(done, some));
        if (!io::read_exactly(file_, bytes, place, "probe").ok()) return false;
        done += some;
    }
    return true;
}

void ProbeReader::drain_lane(std::uint16_t lane, const std::function<void(std::uint16_t, std::span<const Record>)>& use) {
    ProbeLane& shared = header_->lanes[lane];
    std::uint64_t& taken = taken_[lane];
    const std::uint64_t written = shared.written.load(std::memory_order_acquire);
    if (written == taken) return;
    if (written < taken || written - taken > kLaneSlots) {  // no probe writes that
        ++damaged_;
        taken = written;
    }
    while (taken < written) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(written - taken, kTurn));
        if (!read_slots(lane, taken, count)) {
            broken_ = true;
            return;
        }
        std::size_t whole = 0;
        bool sane = true;
        while (whole < count) {
            const auto parts = parts_behind(slots_[whole]);
            sane = parts.has_value();
            if (!sane || count - whole - 1 < *parts) break;
            whole += 1 + *parts;
        }
        if (whole > 0) use(lane, std::span<const Record>(slots_).first(whole));
        taken += whole;
        if (!sane) {
            ++damaged_;
            taken = written;  // where the next record begins cannot be told
        }
        if (whole == 0) break;  // its parts are still to come
    }
    shared.read.store(taken, std::memory_order_release);
}

}  // namespace millrace::record
