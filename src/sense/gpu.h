#pragma once
// One GPU through NVML. A call that fails makes its value absent; a GPU that is gone is asked nothing more.

#include <sys/types.h>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sense/nvml_library.h"
#include "sense/sample.h"

namespace millrace::sense {

class Gpu {
public:
    /// `api` is borrowed. Reads what does not change.
    Gpu(const nvml::Api& api, nvml::Device device, int index, int driver_index);

    [[nodiscard]] const GpuFacts& facts() const { return facts_; }

    /// `members` of the watched process tree, ascending. `neighbours` is how many GPUs are read in one go, this one included: the
    /// blocking measurement of PCIe traffic is left out where it would take too much of the interval.
    void read(std::chrono::nanoseconds now, const std::vector<pid_t>& members, std::size_t neighbours, GpuReading& reading);

private:
    struct FreeSample {
        const nvml::Api* api;
        void operator()(nvml::GpmSample sample) const { api->gpm_free(sample); }
    };
    using ActivitySample = std::unique_ptr<nvml::GpmSampleTag, FreeSample>;
    struct Answers {
        bool any = false;      ///< some call succeeded
        bool strange = false;  ///< some call said NOT_FOUND or UNKNOWN
    };
    bool ok(nvml::Code code);
    template <class Function, class... Arguments>
    bool call(Function function, Arguments... arguments);

    void read_basics(GpuReading& reading);
    void read_memory(GpuReading& reading);
    void read_power(GpuReading& reading);
    void read_clocks(GpuReading& reading);
    void read_processes(const std::vector<pid_t>& members, GpuReading& reading);
    template <class Entry>
    std::optional<std::span<const Entry>> list_processes(nvml::Code (*function)(nvml::Device, unsigned*, Entry*));
    void read_activity(std::chrono::nanoseconds now, GpuReading& reading);
    void read_pcie(std::chrono::nanoseconds now, std::size_t neighbours, GpuReading& reading);
    void open_activity();
    [[nodiscard]] std::optional<double> link_speed();
    std::optional<double> c2c_speed();

    const nvml::Api& api_;
    nvml::Device device_;
    GpuFacts facts_;
    bool lost_ = false, answered_before_ = false;
    Answers answers_;
    std::optional<std::chrono::nanoseconds> read_before_;
    ActivitySample earlier_, later_;
    std::optional<std::chrono::nanoseconds> earlier_taken_;
    bool activity_has_pcie_ = false;  ///< GPM counts the traffic, so nothing has to block for it
    std::vector<nvml::ProcessV2> processes_;
};

}  // namespace millrace::sense
