#include "bench/random_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "data/images/resident_images.h"
#include "data/pairs/resident_pairs.h"
#include "data/recordings/resident_recordings.h"
#include "data/text/resident_text.h"

namespace millrace::bench {
namespace {

constexpr std::uint32_t kImages = 54000, kSide = 28, kClasses = 10;
constexpr std::uint32_t kPairs = 5021, kVector = 768;
constexpr std::uint32_t kRecordedWindows = 400'000;
constexpr std::uint32_t kTextWindows = 32'000, kTextLength = 64, kWords = 10'000;
static_assert(kSide * kSide % 4 == 0);

std::uint32_t whole_batches(std::uint32_t samples, std::int32_t batch) {
    const auto rows = static_cast<std::uint32_t>(std::max(1, batch));
    return std::max(samples / rows * rows, rows);
}

data::Split all_for_training(std::uint32_t count) {
    data::Split split;
    for (std::uint32_t i = 0; i < count; ++i) split.training.push_back(i);
    return split;
}

void fill(data::LabeledImages& images, std::uint32_t count, std::uint64_t seed) {
    images.count = count;
    images.rows = images.columns = kSide;
    images.pixels.resize(std::size_t{count} * kSide * kSide);
    images.labels.resize(count);
    for (std::size_t i = 0; i < images.pixels.size(); i += 4) {  // an image has a multiple of four pixels
        const std::uint32_t bits = base::random_bits(seed, 0, 0, 0, i);
        std::memcpy(images.pixels.data() + i, &bits, sizeof bits);
    }
    for (std::size_t i = 0; i < images.labels.size(); ++i)
        images.labels[i] = static_cast<std::uint8_t>(base::random_bits(seed, 1, 0, 0, i) % kClasses);
}

std::shared_ptr<const data::ImageSet> random_images(std::int32_t batch) {
    auto set = std::make_shared<data::ImageSet>();
    fill(set->train, whole_batches(kImages, batch), 1);
    fill(set->test, kClasses, 2);
    set->name = "random";
    set->classes = kClasses;
    set->pixels = {0.286, 0.353};
    set->split = all_for_training(set->train.count);
    return set;
}

std::shared_ptr<const data::PairSet> random_pairs(std::int32_t batch) {
    auto set = std::make_shared<data::PairSet>();
    set->name = "random";
    set->count = whole_batches(kPairs, batch);
    set->dimensions = kVector;
    for (std::vector<float>* rows : {&set->inputs, &set->targets}) {
        const std::uint32_t stream = rows == &set->inputs ? 1 : 2;
        rows->resize(std::size_t{set->count} * kVector);
        for (std::size_t i = 0; i < rows->size(); ++i)
            (*rows)[i] = base::random_normal(7, 0, 0, stream, i) / std::sqrt(static_cast<float>(kVector));
    }
    set->split = all_for_training(set->count);
    return set;
}

/// Recordings of 80 windows.
std::shared_ptr<const data::RecordingSet> random_recordings(std::int32_t batch) {
    auto set = std::make_shared<data::RecordingSet>();
    set->name = "random";
    set->width = 64;
    set->windows = 80;
    set->classes = {{"NOLEAK", "LEAK"}, {22339 * 80, 17224 * 80}, 1, {40, 2}};
    data::Recordings& train = set->parts[data::index_of(data::Part::train)];
    train.count = static_cast<std::int32_t>(whole_batches(kRecordedWindows, batch) + 79) / 80;
    train.features.resize(static_cast<std::size_t>(train.count) * 80 * 64);
    for (std::size_t i = 0; i < train.features.size(); ++i) {  // halves between 1 and 2, either sign
        const std::uint32_t bits = base::random_bits(11, 0, 0, 0, i);
        train.features[i] = static_cast<std::uint16_t>(0x3c00u | (bits & 0x3ffu) | (bits & 0x8000u));
    }
    for (std::int32_t r = 0; r < train.count; ++r)
        train.labels.push_back(static_cast<std::int32_t>(base::random_bits(11, 1, 0, 0, static_cast<std::uint64_t>(r)) % 2));
    set->scaling = std::make_shared<const data::Scaling>(data::Scaling{std::vector<float>(64, 0), std::vector<float>(64, 1)});
    return set;
}

std::shared_ptr<const data::TextSet> random_text(std::int32_t batch) {
    auto set = std::make_shared<data::TextSet>();
    set->name = "random";
    set->vocabulary = kWords;
    set->tokenizer = std::make_shared<const data::Tokenizer>(data::Tokenizer::count_words("random", kWords).value());
    for (const data::Part part : data::kAllParts) {
        // One window more than the samples of training: it leaves room for every shift.
        const std::size_t windows = part == data::Part::train ? whole_batches(kTextWindows, batch) + 1 : 1;
        std::vector<std::int32_t>& tokens = set->parts[data::index_of(part)];
        tokens.resize(windows * kTextLength);
        for (std::size_t i = 0; i < tokens.size(); ++i)
            tokens[i] = static_cast<std::int32_t>(base::random_bits(13, static_cast<std::uint32_t>(part), 0, 0, i) % kWords);
    }
    set->statistics = data::measure_text(*set);
    return set;
}

}  // namespace

std::unique_ptr<data::BatchSource> random_data(data::DataKind kind, std::int32_t batch) {
    if (kind == data::DataKind::recordings) return std::make_unique<data::ResidentRecordings>(random_recordings(batch));
    if (kind == data::DataKind::text) return std::make_unique<data::ResidentText>(random_text(batch), kTextLength);
    if (kind == data::DataKind::pairs) return std::make_unique<data::PairSource>(random_pairs(batch));
    return std::make_unique<data::ResidentImages>(random_images(batch));
}

}  // namespace millrace::bench
