#include "data/recordings/recording_set.h"

#include <cmath>

#include "tensor/dtype.h"

namespace millrace::data {

Scaling measure(const Recordings& recordings, std::int32_t width) {
    const auto columns = static_cast<std::size_t>(width);
    const std::size_t rows = recordings.features.size() / columns;
    std::vector<double> sum(columns), squares(columns);
    std::vector<double> offset(columns);  // the first row: squares of values around it keep their digits
    for (std::size_t c = 0; c < columns && rows > 0; ++c)
        offset[c] = static_cast<double>(tensor::from_f16(recordings.features[c]));
    for (std::size_t i = 0; i < recordings.features.size(); ++i) {
        const std::size_t c = i % columns;
        const double value = static_cast<double>(tensor::from_f16(recordings.features[i])) - offset[c];
        sum[c] += value;
        squares[c] += value * value;
    }
    Scaling scaling;
    const double n = static_cast<double>(rows > 0 ? rows : 1);
    for (std::size_t c = 0; c < columns; ++c) {
        const double mean = sum[c] / n, deviation = std::sqrt(std::max(0.0, squares[c] / n - mean * mean));
        scaling.mean.push_back(static_cast<float>(mean + offset[c]));
        scaling.deviation.push_back(deviation > 1e-6 ? static_cast<float>(deviation) : 1.0f);
    }
    return scaling;
}

void make_binary(RecordingSet& set) {
    const std::string positive = set.classes.names[static_cast<std::size_t>(set.classes.positive)];
    for (Recordings& part : set.parts)
        for (std::int32_t& label : part.labels) label = label == set.classes.positive ? 1 : 0;
    set.classes.names = {"NO" + positive, positive};
    set.classes.positive = 1;
}

void count_classes(RecordingSet& set) {
    set.classes.counts.assign(set.classes.names.size(), 0);
    for (const std::int32_t label : set.part(Part::train).labels)
        set.classes.counts[static_cast<std::size_t>(label)] += set.windows;
}

}  // namespace millrace::data
