#include "record/machine_samples.h"

#include <utility>

namespace millrace::record {

MachineSamples::MachineSamples(sense::MachineOptions options, sense::Sampler::Receiver receiver) {
    opening_ = std::thread([this, options = std::move(options), receiver = std::move(receiver)]() mutable {
        machine_ = sense::open_machine(options);
        sampler_.emplace(*machine_, std::chrono::seconds{1}, std::move(receiver));
        facts_.store(&machine_->facts(), std::memory_order_release);
    });
}

void MachineSamples::stop() {
    if (opening_.joinable()) opening_.join();
    sampler_->stop();
}

}  // namespace millrace::record
