#include "data/sample_set.h"

#include <cmath>

namespace millrace::data {

void SampleSet::own(std::vector<std::uint8_t> values) {
    auto kept = std::make_shared<const std::vector<std::uint8_t>>(std::move(values));
    bytes = *kept;
    owner = std::move(kept);
}

void measure_channels(SampleSet& set) {
    const auto channels = static_cast<std::size_t>(set.preparation.shape.channels), width = static_cast<std::size_t>(set.width);
    std::vector<std::array<std::uint64_t, 256>> histograms(channels);
    for (const std::int32_t sample : set.part(Part::train)) {
        const std::uint8_t* row = set.bytes.data() + static_cast<std::size_t>(sample) * width;
        for (std::size_t i = 0; i < width; i += channels)
            for (std::size_t c = 0; c < channels; ++c) ++histograms[c][row[i + c]];
    }
    set.preparation.mean.clear();
    set.preparation.deviation.clear();
    for (const auto& histogram : histograms) {
        double count = 0, sum = 0, squares = 0;
        for (std::size_t level = 0; level < histogram.size(); ++level) {
            const auto times = static_cast<double>(histogram[level]), value = static_cast<double>(level) / 255;
            count += times, sum += times * value, squares += times * value * value;
        }
        const double mean = count > 0 ? sum / count : 0, variance = count > 0 ? squares / count - mean * mean : 0;
        set.preparation.mean.push_back(static_cast<float>(mean));
        // One level's share of rounding is no spread.
        set.preparation.deviation.push_back(variance > 1e-10 ? static_cast<float>(std::sqrt(variance)) : 1.0f);
    }
}

void scale_targets(SampleSet& set, const std::string& name, const std::vector<double>& values) {
    if (!set.preparation.target) {
        const std::vector<std::int32_t>& train = set.part(Part::train);
        double mean = 0, squares = 0;
        const auto count = static_cast<double>(std::max<std::size_t>(1, train.size()));
        for (const std::int32_t sample : train) mean += values[static_cast<std::size_t>(sample)] / count;
        for (const std::int32_t sample : train) {
            const double away = values[static_cast<std::size_t>(sample)] - mean;
            squares += away * away / count;
        }
        set.preparation.target = Target{name, mean, squares > 0 ? std::sqrt(squares) : 1.0};
    }
    const Target& target = *set.preparation.target;
    set.targets.clear();
    for (const double value : values) set.targets.push_back(static_cast<float>((value - target.mean) / target.deviation));
}

}  // namespace millrace::data
