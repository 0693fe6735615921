#pragma once
// Stands in for the probe of a process: creates a mapping and writes lanes as the probe does, one record or many at a time.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "io/file.h"
#include "record/probe_mapping.h"

namespace millrace::test {

class FakeProbe {
public:
    explicit FakeProbe(const std::filesystem::path& folder, std::uint32_t pid = static_cast<std::uint32_t>(::getpid()))
        : path_(folder / (std::to_string(pid) + ".probe")) {
        descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (::ftruncate(descriptor_, static_cast<off_t>(record::kMappingBytes)) != 0) return;
        void* memory = ::mmap(nullptr, record::kMappingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
        bytes_ = static_cast<std::byte*>(memory);
        header().state.pid = pid;
        header().state.parent = static_cast<std::uint32_t>(::getppid());
        header().state.magic.store(record::kProbeMagic);
    }
    ~FakeProbe() {
        if (bytes_ != nullptr) ::munmap(bytes_, record::kMappingBytes);
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    FakeProbe(const FakeProbe&) = delete;
    FakeProbe& operator=(const FakeProbe&) = delete;

    record::ProbeHeader& header() { return *reinterpret_cast<record::ProbeHeader*>(bytes_); }
    record::Record& slot(std::uint32_t lane, std::uint64_t number) {
        auto* slots = reinterpret_cast<record::Record*>(bytes_ + record::kHeaderBytes);
        return slots[std::uint64_t{lane} * record::kLaneSlots + number % record::kLaneSlots];
    }
    /// What the probe does with records: they are lost when the lane is full.
    bool write(std::uint32_t lane, const std::vector<record::Record>& slots) {
        record::ProbeLane& at = header().lanes[lane];
        const std::uint64_t written = at.written.load();
        if (written - at.read.load() + slots.size() > record::kLaneSlots) {
            at.lost.fetch_add(1);
            return false;
        }
        for (std::size_t index = 0; index < slots.size(); ++index) slot(lane, written + index) = slots[index];
        at.written.store(written + slots.size());
        return true;
    }
    /// Obeys the control words: gives the mode that is in force.
    record::ProbeMode obey() {
        record::ProbeHeader& all = header();
        const std::uint32_t epoch = all.control.epoch.load();
        if (epoch != all.state.epoch.load()) {
            all.state.mode.store(all.control.mode.load());
            all.state.epoch.store(epoch);
            full_ = 0;
        }
        return static_cast<record::ProbeMode>(all.state.mode.load());
    }
    /// Counts a call of the kind that is counted; true when one is due as a pulse.
    bool count() {
        record::ProbeHeader& all = header();
        all.state.pulses.fetch_add(1);
        const bool full = all.state.mode.load() == static_cast<std::uint32_t>(record::ProbeMode::kFull);
        const std::uint32_t most = all.control.full_calls.load();
        if (full && most > 0 && ++full_ >= most) all.state.mode.store(static_cast<std::uint32_t>(record::ProbeMode::kPulse));
        return !full;
    }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] int descriptor() const { return descriptor_; }

private:
    std::filesystem::path path_;
    int descriptor_ = -1;
    std::byte* bytes_ = nullptr;
    std::uint32_t full_ = 0;
};

}  // namespace millrace::test
