#include "tape/store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "tape/initial.h"
#include "tape/tape_rig.h"

namespace millrace::tape {
namespace {

std::vector<float> counted(std::size_t count, float start) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), start);
    return values;
}

/// What one member draws for a parameter.
std::vector<float> drawn(Store& store, ParameterId id, int member = 0, int group = 0) {
    return store.read_parameter(id, group, member);
}

TEST(Store, TensorsOfAMemberLieSideBySide) {
    TapeRig rig(kCpuPlace, 3);
    const ParameterId a = rig.store->add_matrix({"a.0", "a.1"}, 3, 7, Init::normal(1)),
                      b = rig.store->add_vector({"b"}, 5, Init::value(2));
    const ParameterId s = rig.store->add_vector({"s"}, 5, Init::value(1), kRunning);
    rig.allocate();
    const tensor::View va = rig.store->parameter(a), vb = rig.store->parameter(b), arena = rig.store->parameter_arena();
    EXPECT_EQ(va.k, 3);
    EXPECT_EQ(va.g, 2);
    EXPECT_EQ(va.stride_g, 21);
    EXPECT_EQ(va.stride_row, 7);
    EXPECT_EQ(va.offset, 0);
    EXPECT_EQ(vb.offset, 64) << "42 elements, and the next tensor begins at a multiple of 64";
    EXPECT_EQ(vb.stride_k, va.stride_k);
    EXPECT_EQ(va.stride_k, arena.cols);
    EXPECT_EQ(arena.cols % 64, 0);
    EXPECT_GE(arena.cols, vb.offset + 5);
    EXPECT_EQ(rig.store->gradient(a).offset, va.offset);
    EXPECT_NE(rig.store->gradient(a).buffer, va.buffer);
    EXPECT_NE(rig.store->parameter(s).buffer, va.buffer);
    EXPECT_EQ(rig.store->trainable_count(), 2 * 21 + 5) << "running statistics are not trained";
    EXPECT_EQ(rig.store->bytes(Role::gradient), 3 * arena.cols * 4);
}

TEST(Store, ArenasNobodyAskedForAreAbsent) {
    TapeRig rig;
    rig.options.first_moment = true;
    rig.options.second_moment = false;
    rig.restart();
    rig.store->add_vector({"a"}, 3, Init::value(1));
    rig.allocate();
    EXPECT_TRUE(rig.store->first_moment().present());
    EXPECT_FALSE(rig.store->second_moment().present());
    EXPECT_FALSE(rig.store->copy16().present());
    EXPECT_EQ(rig.store->weight(0).buffer, rig.store->parameter(0).buffer);
}

TEST(Store, TablesDeclaredFirstHaveNoCopies) {
    TapeRig rig;
    EXPECT_EQ(rig.store->first_copied(), 0);
    rig.store->add_vector({"running"}, 3, Init::value(1), kRunning);
    rig.store->add_table({"words"}, 5, 13, Init::normal(1));
    EXPECT_EQ(rig.store->first_copied(), 128) << "65 elements, up to the next multiple of 64";
    const ParameterId weight = rig.store->add_matrix({"weight"}, 4, 3, Init::normal(1));
    rig.store->add_table({"more words"}, 5, 13, Init::normal(1));
    rig.allocate();
    EXPECT_EQ(rig.store->first_copied(), 128);
    EXPECT_EQ(rig.store->parameter(weight).offset, 128);
}

TEST(Store, EmptyModelIsAllowed) {
    TapeRig rig;
    rig.allocate();
    EXPECT_EQ(rig.store->trainable_count(), 0);
    EXPECT_EQ(rig.store->parameter_arena().cols, 0);
}

TEST(Initialize, DependsOnNameAndSeedAlone) {
    TapeRig alone(kCpuPlace), crowded(kCpuPlace), renamed(kCpuPlace);
    const ParameterId only = alone.store->add_matrix({"b"}, 4, 9, Init::normal(0.5));
    crowded.store->add_matrix({"a"}, 13, 3, Init::normal(0.5));
    const ParameterId second = crowded.store->add_matrix({"b"}, 4, 9, Init::normal(0.5));
    renamed.store->add_matrix({"c"}, 4, 9, Init::normal(0.5));
    for (TapeRig* rig : {&alone, &crowded, &renamed}) rig->allocate();
    EXPECT_EQ(drawn(*alone.store, only), drawn(*crowded.store, second));
    EXPECT_NE(drawn(*alone.store, only), drawn(*renamed.store, 0));
    const auto before = drawn(*alone.store, only);
    alone.store->initialize({41});
    EXPECT_NE(drawn(*alone.store, only), before) << "another seed";
    alone.store->initialize({40});
    EXPECT_EQ(drawn(*alone.store, only), before);
}

TEST(Initialize, EveryElementHasItsOwnNumberWhoeverDrawsIt) {
    TapeRig rig(kCpuPlace);
    rig.store->add_matrix({"w"}, 251, 1013, Init::normal(0.5));  // several threads, and a tail of three
    rig.store->add_matrix({"u"}, 3, 3, Init::uniform(2));
    rig.allocate();
    std::uint32_t stream[2] = {2166136261u, 2166136261u};  // FNV-1a of the names
    stream[0] = (stream[0] ^ 'w') * 16777619u;
    stream[1] = (stream[1] ^ 'u') * 16777619u;
    const std::vector<float> w = drawn(*rig.store, 0), u = drawn(*rig.store, 1);
    for (std::size_t i = 0; i < w.size(); ++i) ASSERT_EQ(w[i], 0.5f * base::random_normal(40, 0, 0, stream[0], i)) << i;
    for (std::size_t i = 0; i < u.size(); ++i)
        EXPECT_EQ(u[i], 2 * (2 * base::uniform01(base::random_bits(40, 0, 0, stream[1], i)) - 1)) << i;
    std::vector<float> one(static_cast<std::size_t>(rig.store->parameter_arena().cols), 7), many = one;
    std::vector<std::uint16_t> narrow(one.size(), 7);
    draw_slice(rig.store->parameters(), false, 0, 40, one, {Precision::bf16, narrow}, 1);
    draw_slice(rig.store->parameters(), false, 0, 40, many, {}, 5);
    EXPECT_EQ(one, many);
    EXPECT_EQ(one[w.size()], 0) << "between two tensors";
    for (std::size_t i = 0; i < one.size(); ++i) ASSERT_EQ(narrow[i], tensor::to_bf16(one[i])) << i;
}

TEST(Initialize, PartsMakeUpTheSlice) {
    TapeRig rig(kCpuPlace);
    rig.store->add_vector({"v"}, 5, Init::value(2));
    rig.store->add_matrix({"w"}, 3001, 1999, Init::normal(0.5));  // more than a part
    rig.store->add_matrix({"q"}, 65, 65, Init::orthonormal());
    rig.store->add_matrix({"u.0", "u.1"}, 1024, 1024, Init::uniform(2));
    rig.allocate();
    std::vector<float> whole(static_cast<std::size_t>(rig.store->parameter_arena().cols)), joined;
    draw_slice(rig.store->parameters(), false, 0, 40, whole);
    std::size_t parts = 0;
    draw_parts(rig.store->parameters(), false, 0, 40, rig.store->parameter_arena().cols,
               [&](std::int64_t begin, const std::vector<float>& part) {
                   EXPECT_EQ(begin, static_cast<std::int64_t>(joined.size()));
                   EXPECT_LE(static_cast<std::int64_t>(part.size()), kDrawnPart + 64) << "and what pads a tensor";
                   joined.insert(joined.end(), part.begin(), part.end());
                   parts += 1;
               });
    EXPECT_GE(parts, 2u);
    EXPECT_TRUE(joined == whole);
    const std::vector<float> v = drawn(*rig.store, 0), w = drawn(*rig.store, 1);
    EXPECT_TRUE(std::equal(w.begin(), w.end(), whole.begin() + rig.store->parameters()[1].offset));
    EXPECT_EQ(v, std::vector<float>(5, 2));
    draw_parts({}, false, 0, 40, 0, [](std::int64_t, const std::vector<float>&) { ADD_FAILURE() << "nothing to draw"; });
}

TEST(Initialize, MemberEqualsTheOnlyMemberOfItsSeed) {
    TapeRig three(kCpuPlace, 3);
    const ParameterId id = three.store->add_matrix({"w.0", "w.1"}, 3, 5, Init::normal(1));
    three.allocate();
    EXPECT_NE(drawn(*three.store, id, 0), drawn(*three.store, id, 1));
    EXPECT_NE(drawn(*three.store, id, 0, 0), drawn(*three.store, id, 0, 1));
    for (int member = 0; member < 3; ++member) {
        TapeRig one(kCpuPlace, 1);
        one.store->add_matrix({"w.0", "w.1"}, 3, 5, Init::normal(1));
        one.allocate();
        one.store->initialize({static_cast<std::uint64_t>(40 + member)});
        for (int group = 0; group < 2; ++group) EXPECT_EQ(drawn(*three.store, id, member, group), drawn(*one.store, 0, 0, group));
        EXPECT_EQ(three.store->read_states()[static_cast<std::size_t>(member)].seed, static_cast<std::uint64_t>(40 + member));
    }
}

TEST(Initialize, NormalHasTheDeviationAskedForAndConstantsAreConstant) {
    TapeRig rig(kCpuPlace);
    const ParameterId w = rig.store->add_matrix({"w"}, 100, 101, Init::normal(0.25)),
                      g = rig.store->add_vector({"g"}, 7, Init::value(1));
    const ParameterId v = rig.store->add_vector({"v"}, 3, Init::value(1), kRunning),
                      m = rig.store->add_vector({"m"}, 3, Init::value(0), kRunning);
    rig.allocate();
    double sum = 0, squares = 0;
    for (float x : drawn(*rig.store, w)) {
        sum += x;
        squares += double{x} * x;
    }
    EXPECT_NEAR(sum / 10100, 0, 4 * 0.25 / 100);
    EXPECT_NEAR(std::sqrt(squares / 10100), 0.25, 0.01);
    EXPECT_EQ(drawn(*rig.store, g), std::vector<float>(7, 1.0f));
    EXPECT_EQ(drawn(*rig.store, v), std::vector<float>(3, 1.0f));
    EXPECT_EQ(drawn(*rig.store, m), std::vector<float>(3, 0.0f));
}

class HostAccess : public ::testing::TestWithParam<Place> {};

TEST_P(HostAccess, WritesOneGroupOfOneMemberAndNothingElse) {
    TapeRig rig(GetParam(), 3);
    const ParameterId a = rig.store->add_matrix({"a.0", "a.1"}, 3, 7, Init::value(-1)),
                      b = rig.store->add_vector({"b"}, 5, Init::value(-1));
    rig.allocate();
    using Arena = Store::Arena;
    for (Arena arena : {Arena::value, Arena::gradient, Arena::first_moment, Arena::second_moment}) {
        const float untouched = arena == Arena::value ? -1.0f : 0.0f;
        rig.store->write_parameter(a, 1, 2, counted(21, 1), arena);
        rig.store->write_parameter(b, 0, 0, counted(5, 50), arena);
        EXPECT_EQ(rig.store->read_parameter(a, 1, 2, arena), counted(21, 1));
        EXPECT_EQ(rig.store->read_parameter(b, 0, 0, arena), counted(5, 50));
        for (auto [group, member] : {std::pair(0, 2), std::pair(1, 1), std::pair(1, 0)})
            EXPECT_EQ(rig.store->read_parameter(a, group, member, arena), std::vector<float>(21, untouched));
        EXPECT_EQ(rig.store->read_parameter(b, 0, 2, arena), std::vector<float>(5, untouched));
    }
}

TEST_P(HostAccess, RunningStatisticsAreParametersToo) {
    TapeRig rig(GetParam(), 2);
    const ParameterId s = rig.store->add_vector({"s.0", "s.1"}, 3, Init::value(1), kRunning);
    rig.allocate();
    rig.store->write_parameter(s, 1, 1, {1, 2, 3});
    EXPECT_EQ(rig.store->read_parameter(s, 1, 1), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(rig.store->read_parameter(s, 1, 0), std::vector<float>(3, 1.0f));
}

INSTANTIATE_TEST_SUITE_P(Places, HostAccess, ::testing::Values(kRefPlace, kCpuPlace), [](const auto& p) { return p.param.name; });

TEST(Copies, FollowTheParametersRoundedToNearestEven) {
    TapeRig rig(kCpuPlace, 2);
    rig.options.precision = Precision::bf16;
    rig.restart();
    const ParameterId w = rig.store->add_matrix({"w"}, 2, 3, Init::normal(1));
    rig.allocate();
    EXPECT_EQ(rig.store->weight(w).dtype, tensor::DType::bf16);
    EXPECT_EQ(rig.store->parameter(w).dtype, tensor::DType::f32);
    auto copied = [&](int member) {
        tensor::View view = rig.store->weight(w);
        view.offset += member * view.stride_k;
        std::vector<std::uint16_t> bits(6);
        rig.store->read(view, bits.data(), bits.size() * sizeof(std::uint16_t));
        return bits;
    };
    std::vector<std::uint16_t> wanted;
    for (float value : rig.store->read_parameter(w, 0, 1)) wanted.push_back(tensor::to_bf16(value));
    EXPECT_EQ(copied(1), wanted) << "initialize() fills the copies";

    // One and a bit: below, at (to even, down and up) and above the middle between two bf16; an infinity by rounding; NaN.
    const std::vector<float> values{1 + 0x1p-9f, 1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1.8p-8f, 3.4e38f, NAN};
    rig.store->write_parameter(w, 0, 1, values);
    rig.store->refresh_copies();
    const auto bits = copied(1);
    EXPECT_EQ(tensor::from_bf16(bits[0]), 1.0f);
    EXPECT_EQ(tensor::from_bf16(bits[1]), 1.0f);
    EXPECT_EQ(tensor::from_bf16(bits[2]), 1 + 0x1p-6f);
    EXPECT_EQ(tensor::from_bf16(bits[3]), 1 + 0x1p-7f);
    EXPECT_TRUE(std::isinf(tensor::from_bf16(bits[4])));
    EXPECT_TRUE(std::isnan(tensor::from_bf16(bits[5])));
}

TEST(Copies, AreHalvesInF16) {
    TapeRig rig(kCpuPlace, 1);
    rig.options.precision = Precision::f16;
    rig.restart();
    const ParameterId w = rig.store->add_matrix({"w"}, 1, 3, Init::normal(1));
    rig.allocate();
    EXPECT_EQ(rig.store->weight(w).dtype, tensor::DType::f16);
    EXPECT_EQ(rig.store->parameter(w).dtype, tensor::DType::f32);
    rig.store->write_parameter(w, 0, 0, {1 + 0x3p-11f, 0x1p-24f, 65520.0f});
    rig.store->refresh_copies();
    std::vector<std::uint16_t> bits(3);
    rig.store->read(rig.store->weight(w), bits.data(), bits.size() * sizeof(std::uint16_t));
    EXPECT_EQ(tensor::from_f16(bits[0]), 1 + 0x1p-9f);
    EXPECT_EQ(tensor::from_f16(bits[1]), 0x1p-24f);
    EXPECT_TRUE(std::isinf(tensor::from_f16(bits[2])));
}

/// Refuses everything above a limit, as a full device does.
class SmallDevice final : public ops::Backend {
public:
    explicit SmallDevice(std::size_t limit) : limit_(limit), real_(ops::make_backend(ops::DeviceKind::ref, {}).value()) {}
    [[nodiscard]] ops::DeviceKind kind() const override { return ops::DeviceKind::ref; }
    [[nodiscard]] std::string description() const override { return "a small device"; }
    base::Result<std::unique_ptr<ops::Memory>> allocate(std::size_t bytes) override {
        if (bytes > limit_) return base::Error{"out of memory"};
        return real_->allocate(bytes);
    }
    base::Result<std::unique_ptr<ops::Memory>> allocate_shared(std::size_t bytes) override { return allocate(bytes); }
    void upload(std::byte* device, const void* host, std::size_t bytes) override { real_->upload(device, host, bytes); }
    void download(void* host, const std::byte* device, std::size_t bytes) override { real_->download(host, device, bytes); }
    void clear(std::byte* device, std::size_t bytes) override { real_->clear(device, bytes); }
    base::Result<std::unique_ptr<ops::Uploader>> make_uploader() override { return real_->make_uploader(); }
    void synchronize() override {}
    base::Status check() override { return base::ok(); }
    base::Result<std::vector<std::unique_ptr<ops::Kernel>>> prepare(std::span<const ops::Bound> records,
                                                                    std::span<const ops::Section> sections,
                                                                    std::span<std::byte> scratch) override {
        return real_->prepare(records, sections, scratch);
    }

private:
    std::size_t limit_;
    std::unique_ptr<ops::Backend> real_;
};

TEST(Store, WhatDoesNotFitIsNamedWithItsSize) {
    SmallDevice device(1 << 20);
    Store store(device, {});
    store.add_data("images", tensor::DType::u8, 3 << 10, 1 << 10);
    const auto allocated = store.allocate();
    ASSERT_FALSE(allocated.ok());
    for (const char* part : {"images", "3.0 MiB", "a small device", "out of memory"})
        EXPECT_NE(allocated.error().text().find(part), std::string::npos)
            << part << " is missing in: " << allocated.error().text();
}

TEST(Store, NeighboursOfOneGroupAreOneSegment) {
    TapeRig rig(kCpuPlace, 2);
    rig.options.decay_vectors = false;
    rig.restart();
    rig.store->add_matrix({"a"}, 3, 3, Init::value(1));
    rig.store->add_matrix({"frozen"}, 3, 3, Init::value(1), kFrozen);
    rig.store->add_matrix({"b"}, 9, 9, Init::value(1));
    rig.store->add_vector({"bias"}, 9, Init::value(1));
    rig.store->add_vector({"gain"}, 70, Init::value(1));
    rig.store->add_matrix({"head"}, 2, 2, Init::value(1), std::string_view("head"));
    rig.store->add_matrix({"c"}, 2, 2, Init::value(1));
    rig.allocate();
    const auto& groups = rig.store->groups();
    std::vector<std::string> names;
    for (const ParameterGroup& group : groups) names.push_back(group.name);
    EXPECT_EQ(names, (std::vector<std::string>{"weights", "frozen", "no_decay", "head"}));
    const tensor::View view = rig.store->segments();
    std::vector<ops::Segment> segments(static_cast<std::size_t>(view.rows));
    rig.store->read(view, segments.data(), segments.size() * sizeof(ops::Segment));
    ASSERT_EQ(segments.size(), 4u);
    const std::int32_t ends[] = {192, 384, 448, 512}, of[] = {0, 2, 3, 0};
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(segments[i].end, ends[i]) << i;
        EXPECT_EQ(segments[i].group, of[i]) << i;
    }
    rig.store->set_trainable(1, "head", false);
    const auto table = rig.store->read_groups();
    const std::uint32_t trainable[] = {1, 0, 1, 1, 1, 0, 1, 0};
    ASSERT_EQ(table.size(), 8u);
    for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(table[i].trainable, trainable[i]) << i;
        EXPECT_EQ(table[i].decay_factor, i % 4 == 2 ? 0 : 1) << i;
    }
    EXPECT_EQ(rig.store->trainable_count(), 9 + 81 + 9 + 70 + 4 + 4);
}

TEST(StoreDeathTest, MisuseIsNamed) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    TapeRig rig;
    const ParameterId s = rig.store->add_vector({"s"}, 3, Init::value(0), kRunning);
    EXPECT_DEATH(rig.store->read_states(), "before allocate");
    rig.allocate();
    EXPECT_DEATH(rig.store->add_vector({"late"}, 3, Init::value(0)), "before allocate");
    EXPECT_DEATH(static_cast<void>(rig.store->gradient(s)), "no gradient");
    EXPECT_DEATH(rig.store->initialize({1, 2}), "one seed per member");
    EXPECT_DEATH(rig.store->set_trainable(0, kRunning, true), "running");
    EXPECT_DEATH(rig.store->set_trainable(0, "unknown", true), "unknown");
    EXPECT_DEATH(rig.store->set_trainable(1, kWeights, false), "no such member");
    EXPECT_DEATH(rig.store->write_parameter(s, 0, 0, {1, 2, 3, 4}), "too many values");
}

}  // namespace
}  // namespace millrace::tape
