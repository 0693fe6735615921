// Samples that are streamed: equal to resident ones to the bit, each once an epoch, mixed, and in how much memory.

#include "data/stream/streamed_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/gather_rig.h"
#include "data/resident_samples.h"

namespace millrace::data {
namespace {

enum class Inputs { grey, colour, vectors };

/// Samples that differ from each other; classes lie one after the other. The parts are in no order.
std::shared_ptr<SampleSet> samples(std::int32_t count, Inputs inputs, bool classes) {
    auto set = std::make_shared<SampleSet>();
    set->name = "some";
    set->count = count;
    set->width = inputs == Inputs::colour ? 18 : 15;
    if (inputs == Inputs::vectors) {
        for (std::int32_t i = 0; i < count * set->width; ++i) set->numbers.push_back(static_cast<float>(i) / 7 - 30);
    } else {
        const std::int32_t channels = inputs == Inputs::colour ? 3 : 1;
        set->preparation.shape = {channels == 3 ? 2 : 3, channels == 3 ? 3 : 5, channels};
        for (std::int32_t c = 0; c < channels; ++c) {
            set->preparation.mean.push_back(0.3f + 0.1f * static_cast<float>(c));
            set->preparation.deviation.push_back(0.25f);
        }
        for (std::int32_t i = 0; i < count * set->width; ++i)
            set->bytes.push_back(static_cast<std::uint8_t>(base::random_bits(3, 0, 0, 0, static_cast<std::uint64_t>(i))));
    }
    if (classes) {
        set->preparation.classes = 3;
        for (std::int32_t i = 0; i < count; ++i) set->labels.push_back(3 * i / count);
    } else {
        set->preparation.target = Target{"size", 10, 2};
        for (std::int32_t i = 0; i < count; ++i) set->targets.push_back(static_cast<float>(i) / 8);
    }
    for (std::int32_t i = 0; i < count; ++i) {
        const std::int32_t sample = (i * 7 + 3) % count;
        set->part(i % 5 == 0 ? Part::validation : i % 7 == 0 ? Part::test : Part::train).push_back(sample);
    }
    return set;
}

/// Of windows that hold about `rows` training rows.
StreamOptions windows_of(const SampleSet& set, std::uint64_t rows) {
    StreamOptions options;
    options.window_bytes = 2 * rows * (set.input_bytes() / 8 * 8 + 16);
    options.epochs = 3;
    return options;
}

/// What a part's rows become in `epoch`, batch by batch: inputs and answers of every member, one behind the other. The source
/// ends before the memory that its threads fill.
struct Pass {
    std::vector<double> inputs, answers;
    bool operator==(const Pass&) const = default;
};
Pass pass(std::unique_ptr<BatchSource> from, Part part, std::int32_t rows, std::uint32_t epoch = 0, int members = 1,
          ops::DeviceKind device = ops::DeviceKind::cpu) {
    const bool training = part == Part::train;
    BatchSource& source = *from;
    tensor::View x, y;
    GatherRig rig(source, device, training, members, [&](tape::Builder& builder) {
        x = behind_two_columns(builder, rows, source.fields()[0].width);
        y = source.gather(builder, part, rows, {{source.fields()[0].name, x}, {source.fields()[1].name}})[1];
        builder.keep(x);
        builder.keep(y);
    });
    Pass seen;
    std::uint64_t step = 0;
    for (std::int32_t first = 0; first < source.samples(part); first += rows, ++step) {
        const std::int32_t count = std::min(rows, source.samples(part) - first);
        const auto done = [&] { return base::Result<std::uint64_t>(step); };
        EXPECT_TRUE(source.await_rows({part, epoch, first, count, step}, done).ok());
        auto states = rig.store->read_states();
        for (ops::MemberState& state : states) {
            state.epoch = epoch;
            state.step = static_cast<std::uint32_t>(step);
            state.position = state.eval_position = static_cast<std::uint32_t>(first);
        }
        rig.store->write_states(states);
        rig.program->run();
        const auto values = rig.program->read(x), answers = rig.program->read(y);
        const auto width = static_cast<std::ptrdiff_t>(source.fields()[0].width);
        for (std::ptrdiff_t k = 0; k < members; ++k) {
            const auto at = values.begin() + k * rows * width;
            seen.inputs.insert(seen.inputs.end(), at, at + count * width);
            seen.answers.insert(seen.answers.end(), answers.begin() + k * rows, answers.begin() + k * rows + count);
        }
    }
    from.reset();
    return seen;
}

std::unique_ptr<StreamedSource> stream(const std::shared_ptr<const SampleSet>& set, std::uint64_t rows,
                                       Augmentation augmentation = {}) {
    const StreamOptions options = windows_of(*set, rows);
    auto made = StreamedSource::create(streamed(set, augmentation, options.seed).value(), options);
    EXPECT_TRUE(made.ok()) << made.error().text();
    return made.ok() ? std::move(*made) : nullptr;
}

TEST(StreamedSamples, EvaluationGivesTheRowsOfAResidentSetToTheBit) {
    for (const Inputs inputs : {Inputs::grey, Inputs::colour, Inputs::vectors})
        for (const bool classes : {true, false})
            for (const std::int32_t count : {11, 211, 500}) {
                const std::shared_ptr<const SampleSet> set = samples(count, inputs, classes);
                for (const Part part : {Part::validation, Part::test}) {
                    const Pass wanted = pass(std::make_unique<ResidentSamples>(set), part, 3);
                    for (const std::uint64_t window : {40, 5000})
                        EXPECT_TRUE(pass(stream(set, window), part, 3) == wanted) << count << " " << name_of(part);
                }
            }
}

TEST(StreamedSamples, AnEpochTakesEverySampleOnceInEachMembersOrder) {
    for (const Inputs inputs : {Inputs::colour, Inputs::vectors}) {
        const std::shared_ptr<const SampleSet> set = samples(521, inputs, false);
        ASSERT_GT(stream(set, 64)->plan(Part::train)->windows(), 3u);
        std::multiset<double> wanted;
        for (const std::int32_t sample : set->part(Part::train))
            for (int member = 0; member < 2; ++member) wanted.insert(double{set->targets[static_cast<std::size_t>(sample)]});
        std::vector<double> before;
        for (const std::uint32_t epoch : {0u, 1u}) {
            const Pass seen = pass(stream(set, 64), Part::train, 13, epoch, 2);
            EXPECT_EQ(std::multiset<double>(seen.answers.begin(), seen.answers.end()), wanted);
            EXPECT_NE(seen.answers, before);
            before = seen.answers;
            // Every answer has the input that belongs to it.
            const auto width = static_cast<std::size_t>(set->width);
            for (std::size_t i = 0; i < seen.answers.size(); ++i) {
                const std::size_t at = static_cast<std::size_t>(seen.answers[i] * 8) * width;
                for (std::size_t d = 0; d < width; ++d) {
                    const double raw = inputs == Inputs::vectors
                                           ? double{set->numbers[at + d]}
                                           : (set->bytes[at + d] / 255.0 - set->preparation.mean[d % 3]) / 0.25;
                    ASSERT_NEAR(seen.inputs[i * width + d], raw, 1e-4) << i << " " << d;
                }
            }
        }
    }
}

TEST(StreamedSamples, ASetInOneWindowAndOneOfOneSampleAreStreamedToo) {
    const std::shared_ptr<const SampleSet> small = samples(29, Inputs::grey, true);
    EXPECT_EQ(stream(small, 5000)->plan(Part::train)->windows(), 1u);
    const Pass seen = pass(stream(small, 5000), Part::train, 5);
    std::vector<double> labels = seen.answers, wanted;
    for (const std::int32_t sample : small->part(Part::train)) wanted.push_back(small->labels[static_cast<std::size_t>(sample)]);
    std::ranges::sort(labels);
    std::ranges::sort(wanted);
    EXPECT_EQ(labels, wanted);

    auto one = samples(1, Inputs::vectors, false);
    one->parts = {std::vector<std::int32_t>{0}, {}, {}};
    EXPECT_EQ(pass(stream(one, 100), Part::train, 1).answers, std::vector<double>{0});
}

/// Of one sample, since what is drawn depends on the place in the pass.
TEST(StreamedSamples, AugmentationIsThatOfAResidentSet) {
    auto changed = samples(1, Inputs::colour, true);
    changed->parts = {std::vector<std::int32_t>{0}, {}, {}};
    const std::shared_ptr<const SampleSet> set = std::move(changed);
    Augmentation augmentation;
    augmentation.enabled = true;
    augmentation.rotate = 90;
    for (const ops::DeviceKind device : {ops::DeviceKind::cpu, ops::DeviceKind::ref}) {
        const Pass wanted = pass(std::make_unique<ResidentSamples>(set, augmentation), Part::train, 1, 0, 3, device);
        EXPECT_FALSE(wanted == pass(std::make_unique<ResidentSamples>(set), Part::train, 1, 0, 3, device));
        EXPECT_TRUE(wanted == pass(stream(set, 5000, augmentation), Part::train, 1, 0, 3, device));
    }
}

TEST(StreamedSamples, ClassesThatLieOneBehindTheOtherAreMixed) {
    const std::shared_ptr<const SampleSet> set = samples(20'000, Inputs::grey, true);
    const auto source = stream(set, 1000);
    ASSERT_NE(source, nullptr);
    EXPECT_GT(source->plan(Part::train)->windows(), 8u);
    EXPECT_LT(*source->loader_counts(0)->mix_deviation, 0.1);
    EXPECT_NE(source->loading().find("differs from that of the set by at most"), std::string::npos);
    const std::shared_ptr<const SampleSet> numbers = samples(211, Inputs::vectors, false);
    const auto other = stream(numbers, 50);
    EXPECT_FALSE(other->loader_counts(0)->mix_deviation.has_value()) << "there are no classes";
    EXPECT_EQ(other->loading().find("class"), std::string::npos);
}

TEST(StreamedSamples, WhatAResidentSetRefusesIsRefused) {
    Augmentation augmentation;
    augmentation.enabled = true;
    const auto refused = streamed(samples(40, Inputs::vectors, true), augmentation, 42);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("samples cannot be augmented"), std::string::npos) << refused.error().text();
}

TEST(StreamedSamples, WindowsThatHoldNoSampleAreRefused) {
    auto set = samples(40, Inputs::vectors, true);
    StreamOptions options;
    options.window_bytes = 100;
    const auto refused = StreamedSource::create(streamed(set, {}, 42).value(), options);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("data.window = 100B leaves 50 B"), std::string::npos) << refused.error().text();
    // Windows of four samples of three classes: some epoch has one with a single class.
    options.window_bytes = 8 * 64;
    options.epochs = 100;
    const auto alone = StreamedSource::create(streamed(set, {}, 42).value(), options);
    ASSERT_FALSE(alone.ok());
    EXPECT_NE(alone.error().text().find("one class alone; a larger data.window would be right"), std::string::npos)
        << alone.error().text();
}

TEST(StreamedSamples, WhatIsReadThatFailsNamesThePart) {
    auto set = samples(60, Inputs::grey, true);
    set->bytes.clear();
    set->reader = [](std::int32_t first, std::span<std::byte> inputs) -> base::Status {
        if (first > 20) return base::Error{"is cut", "rows.bin"};
        std::ranges::fill(inputs, std::byte{1});
        return base::ok();
    };
    auto source = stream(set, 5000);
    ASSERT_NE(source, nullptr);
    GatherRig rig(*source, ops::DeviceKind::cpu, true, 1, [&](tape::Builder& builder) {
        source->gather(builder, Part::train, 4, {{"image"}, {"label"}});
    });
    const base::Status failed = source->await_rows({Part::train, 0, 0, 4, 0}, [] { return base::Result<std::uint64_t>(0); });
    ASSERT_FALSE(failed.ok());
    EXPECT_NE(failed.error().text().find("cannot read the train data of some"), std::string::npos) << failed.error().text();
    EXPECT_NE(failed.error().text().find("rows.bin"), std::string::npos) << failed.error().text();
    source.reset();  // before the memory that its threads fill
}

TEST(StreamedSamples, DeviceMemoryIsThatOfTheWindows) {
    const std::shared_ptr<const SampleSet> set = samples(20'000, Inputs::vectors, false);
    const auto source = stream(set, 300);
    const auto backend = ops::make_backend(ops::DeviceKind::cpu, {}).value();
    tape::Store store(*backend, {});
    ASSERT_TRUE(source->declare(store).ok());
    ASSERT_TRUE(store.seal().ok());
    EXPECT_LE(store.bytes(tape::Role::data), static_cast<std::int64_t>(windows_of(*set, 300).window_bytes * 3 / 2 + 1024));
}

}  // namespace
}  // namespace millrace::data
