#pragma once
// Working memory of kernels: one shared part and one part per worker. Kernels run one after another, so all of them use the same
// memory; each says while it is prepared how much it needs, the backend allocates once, and running only reads the addresses.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "base/result.h"

namespace millrace::ops::cpu {

class Scratch {
public:
    explicit Scratch(int workers) : workers_(static_cast<std::size_t>(workers)) {}

    void reserve_shared(std::size_t floats) { shared_wanted_ = std::max(shared_wanted_, round(floats)); }
    void reserve_worker(std::size_t floats) { worker_wanted_ = std::max(worker_wanted_, round(floats)); }

    /// Grows to what was reserved. Addresses change: never while a kernel runs.
    base::Status allocate() {
        const std::size_t floats = shared_wanted_ + workers_ * worker_wanted_;
        if (floats > size_) {
            float* memory =
                static_cast<float*>(::operator new (floats * sizeof(float), std::align_val_t{kAlignment}, std::nothrow));
            if (memory == nullptr)
                return base::Error{"no memory for " + std::to_string(floats * sizeof(float)) +
                                   " bytes of working memory; a smaller batch needs less"};
            memory_.reset(memory);
            size_ = floats;
        }
        shared_ = shared_wanted_;
        worker_ = worker_wanted_;
        return base::ok();
    }

    [[nodiscard]] float* shared() const { return memory_.get(); }
    [[nodiscard]] float* worker(int index) const { return memory_.get() + shared_ + static_cast<std::size_t>(index) * worker_; }

private:
    static constexpr std::size_t kAlignment = 64;
    static std::size_t round(std::size_t floats) { return (floats + 15) / 16 * 16; }
    struct Free {
        void operator()(float* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
    };
    std::size_t workers_;
    std::size_t shared_wanted_ = 0, worker_wanted_ = 0, shared_ = 0, worker_ = 0, size_ = 0;
    std::unique_ptr<float, Free> memory_;
};

}  // namespace millrace::ops::cpu
