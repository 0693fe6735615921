#pragma once
// Another sampling rate for a recording: a band-limited interpolation by a windowed sinc, held as a table of phases.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace millrace::data {

/// Flat to 0.01 dB up to 0.44 of the lower of the two rates; from 0.503 of it on at least 80 dB down. No delay: sample
/// 0 stays at 0 s. Outside its ends a recording counts as silence. Equal rates copy.
class Resampler {
public:
    Resampler(std::uint32_t from, std::uint32_t to);

    /// How many samples the whole of `input` samples gives: the ceiling of input * to / from.
    [[nodiscard]] std::uint64_t length(std::uint64_t input) const;
    /// How many input samples decide the first `output` samples.
    [[nodiscard]] std::uint64_t needs(std::uint64_t output) const;
    /// The first min(most, length(input.size())) samples at the new rate. Thread safe.
    [[nodiscard]] std::vector<float> resample(std::span<const float> input, std::uint64_t most) const;

private:
    [[nodiscard]] double apply(std::span<const float> input, std::int64_t centre, std::uint32_t phase) const;

    std::uint64_t from_ = 1, to_ = 1;  ///< without their common divisor
    std::uint32_t phases_ = 1;         ///< between two input samples; `to_`, or fewer with interpolation between them
    std::int64_t reach_ = 0;           ///< input samples on either side
    std::vector<float> table_;         ///< [phases_ + 1, 2 * reach_]
};

/// Keeps the tables of the rates that a set of recordings uses. Thread safe.
class Resamplers {
public:
    explicit Resamplers(std::uint32_t to) : to_(to) {}
    std::shared_ptr<const Resampler> from(std::uint32_t rate);

private:
    static constexpr std::size_t kKept = 16;
    std::uint32_t to_;
    std::mutex lock_;
    std::map<std::uint32_t, std::shared_ptr<const Resampler>> kept_;
};

}  // namespace millrace::data
