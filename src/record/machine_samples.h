#pragma once
// Samples of the machine while a command is recorded. The driver may take a second to open its sensors, so that happens on a
// thread of its own while the command begins.

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "sense/machine.h"
#include "sense/sampler.h"

namespace millrace::record {

class MachineSamples {
public:
    /// Starts at once. `receiver` is called as sense::Sampler says.
    MachineSamples(sense::MachineOptions options, sense::Sampler::Receiver receiver);
    ~MachineSamples() { stop(); }
    MachineSamples(const MachineSamples&) = delete;
    MachineSamples& operator=(const MachineSamples&) = delete;

    /// Null until the sensors are open.
    [[nodiscard]] const sense::MachineFacts* facts() const { return facts_.load(std::memory_order_acquire); }
    /// Waits for the sensors to be open, and ends.
    void stop();

private:
    std::unique_ptr<sense::Source> machine_;
    std::optional<sense::Sampler> sampler_;
    std::atomic<const sense::MachineFacts*> facts_ = nullptr;
    std::thread opening_;
};

}  // namespace millrace::record
