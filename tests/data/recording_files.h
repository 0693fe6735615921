#pragma once
// Small sets of recordings as HDF5 files, whose features say which window of which recording they are of.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/folder.h"
#include "io/hdf5.h"
#include "tensor/dtype.h"

namespace millrace::data::testing {

struct RecordingFileSpec {
    std::vector<std::int16_t> labels;
    std::uint64_t longs = 2, shorts = 3, width = 5;
    std::uint64_t chunk = 0;  ///< recordings of a chunk, packed; 0: contiguous
    bool f32 = false;
    bool statistics = true;  ///< mean 0 and deviation 1, so that features stay what they are
    std::vector<std::string> names{"NOLEAK", "LEAK"};

    [[nodiscard]] std::uint64_t windows() const { return longs * shorts; }
};

/// Feature d of row `row` (recording * windows + window): the first two are row % 1000 and row / 1000, the others tell the label.
inline float feature_of(std::uint64_t row, std::uint64_t d, int label) {
    if (d < 2) return static_cast<float>(d == 0 ? row % 1000 : row / 1000);
    return static_cast<float>((row * 7 + d * 13) % 97) / 8 + static_cast<float>(8 * label);
}
/// The row that two features tell of.
inline std::uint64_t row_of(double first, double second) {
    return static_cast<std::uint64_t>(std::llround(first)) + 1000 * static_cast<std::uint64_t>(std::llround(second));
}

/// Label r % classes of `count` recordings.
inline std::vector<std::int16_t> mixed_labels(std::size_t count, int classes = 2) {
    std::vector<std::int16_t> labels;
    for (std::size_t r = 0; r < count; ++r)
        labels.push_back(static_cast<std::int16_t>((r * 5 + r / 3) % static_cast<std::size_t>(classes)));
    return labels;
}
/// One class after the other.
inline std::vector<std::int16_t> sorted_labels(std::size_t count) {
    std::vector<std::int16_t> labels(count);
    for (std::size_t r = count / 2; r < count; ++r) labels[r] = 1;
    return labels;
}

template <class Values>
void add_dataset(io::Hdf5Writer& writer, const io::Hdf5Layout& layout, const Values& values) {
    const auto set = writer.add_dataset(layout);
    ASSERT_TRUE(set.ok()) << set.error().text();
    const auto done = writer.append(*set, std::as_bytes(std::span(values)));
    ASSERT_TRUE(done.ok()) << done.error().text();
}

inline void write_recording_file(const std::filesystem::path& path, const RecordingFileSpec& spec) {
    auto writer = io::Hdf5Writer::create(path);
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    const auto add = [&](const io::Hdf5Layout& layout, const auto& values) { add_dataset(**writer, layout, values); };
    const std::uint64_t count = spec.labels.size();
    std::vector<float> wide;
    for (std::uint64_t row = 0; row < count * spec.windows(); ++row)
        for (std::uint64_t d = 0; d < spec.width; ++d) wide.push_back(feature_of(row, d, spec.labels[row / spec.windows()]));
    std::vector<std::uint16_t> halves;
    for (const float value : wide) halves.push_back(tensor::to_f16(value));
    io::Hdf5Layout layout{.name = "segments_mel",
                          .type = spec.f32 ? io::ElementType::kF32 : io::ElementType::kF16,
                          .dims = {count, spec.longs, spec.shorts, spec.width, 1}};
    if (spec.chunk > 0) {
        layout.chunk = {std::min<std::uint64_t>(spec.chunk, count), spec.longs, spec.shorts, spec.width, 1};
        layout.gzip = 4;
        layout.shuffle = true;
    }
    if (spec.f32)
        add(layout, wide);
    else
        add(layout, halves);
    add({.name = "labels", .type = io::ElementType::kI16, .dims = {count}}, spec.labels);
    if (spec.statistics) {
        add({.name = "mel_mean", .type = io::ElementType::kF32, .dims = {spec.width}}, std::vector<float>(spec.width, 0.0f));
        add({.name = "mel_std", .type = io::ElementType::kF32, .dims = {spec.width}}, std::vector<float>(spec.width, 1.0f));
    }
    std::string names = "[";
    for (const std::string& name : spec.names) names += (names.size() > 1 ? ", \"" : "\"") + name + "\"";
    ASSERT_TRUE((*writer)->set_attribute("labels_json", names + "]").ok());
    const auto finished = (*writer)->finish();
    ASSERT_TRUE(finished.ok()) << finished.error().text();
}

/// Three parts, of the given numbers of recordings.
inline void write_recording_folder(const std::filesystem::path& folder, RecordingFileSpec spec, std::size_t validation = 7,
                                   std::size_t test = 5) {
    std::filesystem::create_directories(folder);
    write_recording_file(folder / kRecordingFiles[0], spec);
    spec.labels = mixed_labels(validation);
    write_recording_file(folder / kRecordingFiles[1], spec);
    spec.labels = mixed_labels(test);
    write_recording_file(folder / kRecordingFiles[2], spec);
}

}  // namespace millrace::data::testing
