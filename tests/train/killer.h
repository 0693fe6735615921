#pragma once
// A run as a killed process leaves it, without a process.

#include <atomic>
#include <filesystem>

#include "train/listener.h"

namespace millrace::train {

/// Copies the run before a step, as a process that is killed there would leave it; asks for a checkpoint one step earlier.
class Killer final : public Listener {
public:
    Killer(std::filesystem::path run, std::filesystem::path copy, std::uint64_t step)
        : run_(std::move(run)), copy_(std::move(copy)), step_(step) {}
    base::Status on_step(std::uint64_t step) override {
        if (step + 1 == step_) saves += 1;
        if (step == step_ + 1)
            std::filesystem::copy(run_, copy_,
                                  std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
        return base::ok();
    }
    std::atomic<std::uint32_t> saves{0};

private:
    std::filesystem::path run_, copy_;
    std::uint64_t step_;
};

}  // namespace millrace::train
