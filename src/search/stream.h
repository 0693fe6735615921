#pragma once
// Random numbers of a search: a stream is a pure function of the study's seed, a trial's number and its purpose, so that neither
// the order in which workers ask nor a resumed study changes a draw.

#include <cmath>
#include <cstdint>

#include "base/philox.h"

namespace millrace::search {

enum class Purpose : uint32_t { uniform_draw = 1, sobol_shift, tpe, cmaes, perturbation, forest };

class Stream {
public:
    /// `detail` tells streams of one trial and purpose apart (a step, the index of a tree); below 2^32.
    Stream(uint64_t seed, int64_t number, Purpose purpose, int64_t detail = 0)
        : seed_(seed),
          number_(static_cast<uint32_t>(number)),
          detail_(static_cast<uint32_t>(detail)),
          purpose_(static_cast<uint32_t>(purpose)) {}

    /// 32 random bits.
    uint32_t bits() {
        if (at_ == 4) {
            block_ = base::random_block(seed_, number_, detail_, purpose_, next_block_++);
            at_ = 0;
        }
        return block_.v[at_++];
    }
    /// In (0, 1), on a grid of 2^-32.
    double uniform() { return (static_cast<double>(bits()) + 0.5) * (1.0 / 4294967296.0); }
    /// 0 .. count - 1; count < 2^31.
    size_t below(size_t count) { return static_cast<size_t>(uniform() * static_cast<double>(count)); }
    /// N(0, 1).
    double normal() {
        const double radius = std::sqrt(-2 * std::log(uniform()));
        return radius * std::cos(6.283185307179586 * uniform());
    }

private:
    uint64_t seed_;
    uint32_t number_, detail_, purpose_;
    uint32_t next_block_ = 0;
    uint32_t at_ = 4;
    base::Philox4 block_{};
};

}  // namespace millrace::search
