#include "data/text/text_set.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "data/gather_rig.h"
#include "ops/gather/gather.h"

namespace millrace::data {
namespace {

/// Token i of the training part is 4 + i, of the others 1004 + i and 2004 + i: a token says where it stands.
std::shared_ptr<const TextSet> numbered_text(std::size_t train, std::size_t validation = 12, std::size_t test = 9) {
    auto set = std::make_shared<TextSet>();
    set->vocabulary = 4000;
    set->tokenizer = std::make_shared<const Tokenizer>(Tokenizer::count_words("word", 4000).value());
    const std::size_t counts[] = {train, validation, test};
    for (std::size_t part = 0; part < kPartCount; ++part) {
        set->parts[part].resize(counts[part]);
        std::iota(set->parts[part].begin(), set->parts[part].end(), 4 + 1000 * static_cast<std::int32_t>(part));
    }
    set->statistics = measure_text(*set);
    return set;
}

/// One program that gathers windows.
struct GatheredText {
    struct Window {
        std::vector<std::int32_t> tokens;
        std::int32_t length = 0;
        bool operator==(const Window&) const = default;
    };

    GatheredText(ops::DeviceKind kind, std::shared_ptr<const TextSet> set, std::int32_t length, Part part, std::int32_t rows,
                 bool training, int members = 1, TextStages stages = {})
        : source(std::move(set), length, stages), rig(source, kind, training, members, [&](tape::Builder& builder) {
              const auto views = source.gather(builder, part, rows, {{"length"}, {"tokens"}});
              lengths = views[0];
              tokens = views[1];
              builder.keep(lengths);
              builder.keep(tokens);
          }) {}

    /// All rows of all members, after the given epoch and position are put into the states.
    std::vector<Window> run(std::uint32_t epoch = 0, std::uint32_t position = 0) {
        auto states = rig.store->read_states();
        for (ops::MemberState& state : states) state.epoch = epoch, state.position = state.eval_position = position;
        rig.store->write_states(states);
        rig.program->run();
        const auto ids = rig.program->read(tokens), counts = rig.program->read(lengths);
        std::vector<Window> windows(counts.size());
        const auto width = static_cast<std::size_t>(tokens.cols);
        for (std::size_t row = 0; row < counts.size(); ++row) {
            windows[row].tokens.assign(ids.begin() + static_cast<std::ptrdiff_t>(row * width),
                                       ids.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
            windows[row].length = static_cast<std::int32_t>(counts[row]);
        }
        return windows;
    }
    ResidentText source;
    tensor::View tokens, lengths;
    GatherRig rig;
};

constexpr ops::DeviceKind kKinds[] = {ops::DeviceKind::ref, ops::DeviceKind::cpu};

TEST(ResidentText, EvaluationHasEveryTargetOnceForEveryLength) {
    for (const ops::DeviceKind kind : kKinds)
        for (const std::int32_t length : {1, 2, 3, 5, 7, 10, 11, 12, 13, 64}) {
            const auto set = numbered_text(130, 12);
            const std::int32_t samples = ResidentText(set, length).samples(Part::validation);
            EXPECT_EQ(samples, (11 + length - 1) / length);
            std::vector<std::int32_t> targets;
            for (const auto& window : GatheredText(kind, set, length, Part::validation, samples, false).run(3)) {
                ASSERT_TRUE(window.length >= 1 && window.length <= length);
                for (std::int32_t i = 1; i <= length; ++i) {
                    const std::int32_t target = window.tokens[static_cast<std::size_t>(i)];
                    if (i > window.length) {
                        EXPECT_EQ(target, 0) << "nothing behind the end";
                        continue;
                    }
                    EXPECT_EQ(target, window.tokens[static_cast<std::size_t>(i - 1)] + 1) << "the input is the token before";
                    targets.push_back(target);
                }
            }
            const std::vector<std::int32_t>& all = set->tokens(Part::validation);
            EXPECT_EQ(targets, std::vector(all.begin() + 1, all.end())) << length;
        }
}

TEST(ResidentText, TrainingHasEveryTargetOnceForEveryShift) {
    for (const ops::DeviceKind kind : kKinds)
        for (const std::int32_t length : {1, 2, 5, 7, 31}) {
            const auto set = numbered_text(131);
            const std::int32_t samples = ResidentText(set, length).samples(Part::train);
            EXPECT_EQ(samples, 131 / length - 1);
            GatheredText gathered(kind, set, length, Part::train, samples, true);
            std::set<std::int32_t> shifts;
            for (std::uint32_t epoch = 0; epoch < 24; ++epoch) {
                std::vector<std::int32_t> targets;
                for (const auto& window : gathered.run(epoch)) {
                    EXPECT_EQ(window.length, length) << "training windows are full";
                    for (std::size_t i = 1; i < window.tokens.size(); ++i) {
                        EXPECT_EQ(window.tokens[i], window.tokens[i - 1] + 1);
                        targets.push_back(window.tokens[i]);
                    }
                }
                std::ranges::sort(targets);
                std::vector<std::int32_t> wanted(static_cast<std::size_t>(samples * length));
                std::iota(wanted.begin(), wanted.end(), targets.front());
                EXPECT_EQ(targets, wanted) << "epoch " << epoch;
                shifts.insert(targets.front() - 5);
                EXPECT_EQ(targets.front() - 5,
                          static_cast<std::int32_t>(ops::window_shift(70, epoch, static_cast<std::uint32_t>(length))));
            }
            EXPECT_GE(*shifts.begin(), 0);
            EXPECT_LT(*shifts.rbegin(), length);
            EXPECT_GE(shifts.size(), length == 1 ? 1u : length == 2 ? 2u : 4u) << "windows begin elsewhere in other epochs";
        }
}

TEST(ResidentText, MembersHaveTheirOwnOrderAndShift) {
    const auto set = numbered_text(1000);
    GatheredText gathered(ops::DeviceKind::ref, set, 13, Part::train, 75, true, 3);
    GatheredText same(ops::DeviceKind::cpu, set, 13, Part::train, 75, true, 3);
    int different_shifts = 0;
    for (std::uint32_t epoch = 0; epoch < 8; ++epoch) {
        const auto windows = gathered.run(epoch);
        ASSERT_EQ(windows.size(), 225u);
        std::set<std::int32_t> shifts;
        for (std::size_t member = 0; member < 3; ++member) {
            std::int32_t least = windows[member * 75].tokens[0];
            for (std::size_t row = 0; row < 75; ++row) least = std::min(least, windows[member * 75 + row].tokens[0]);
            shifts.insert(least);
            EXPECT_NE(windows[member * 75].tokens[0], windows[(member + 1) % 3 * 75].tokens[0]);
        }
        different_shifts += shifts.size() > 1 ? 1 : 0;
        EXPECT_EQ(same.run(epoch), windows);
    }
    EXPECT_GE(different_shifts, 7);
}

TEST(ResidentText, APositionGoesOnWhereThePassStood) {
    const auto set = numbered_text(1000);
    GatheredText whole(ops::DeviceKind::cpu, set, 13, Part::train, 75, true),
        part(ops::DeviceKind::cpu, set, 13, Part::train, 20, true);
    const auto all = whole.run(5);
    const auto later = part.run(5, 40);
    EXPECT_TRUE(std::equal(later.begin(), later.end(), all.begin() + 40));
    const auto first = part.run(6);
    EXPECT_FALSE(std::equal(first.begin(), first.end(), all.begin()));
}

/// Domains of 100, 60 and 73 training tokens, 12, 30 and 8 to validate: a token says where it stands in all of them together.
std::shared_ptr<const TextSet> three_domains() {
    std::vector<TextSet> texts;
    std::int32_t next[kPartCount] = {4, 1004, 2004};
    const std::size_t counts[][kPartCount] = {{100, 12, 9}, {60, 30, 5}, {73, 8, 22}};
    for (const auto& count : counts) {
        TextSet text = *numbered_text(count[0], count[1], count[2]);
        text.name = fmt::format("d{}", texts.size());
        for (std::size_t part = 0; part < kPartCount; ++part) {
            std::iota(text.parts[part].begin(), text.parts[part].end(), next[part]);
            next[part] += static_cast<std::int32_t>(count[part]);
        }
        texts.push_back(std::move(text));
    }
    return std::make_shared<const TextSet>(join_texts(texts).value());
}

TEST(ResidentText, TheEpochDecidesWhichDomainIsRead) {
    const auto set = three_domains();
    EXPECT_EQ(set->name, "d0, d1, d2");
    EXPECT_EQ(ResidentText(set, 7).samples(Part::train), 60 / 7 - 1) << "as many as the smallest domain has";
    const TextStages stages{5, 2};
    EXPECT_EQ(ResidentText(set, 7, stages).samples(Part::train), 5);
    const std::int32_t first[] = {4, 104, 164}, end[] = {104, 164, 237};
    GatheredText ref(ops::DeviceKind::ref, set, 7, Part::train, 5, true, 2, stages),
        cpu(ops::DeviceKind::cpu, set, 7, Part::train, 5, true, 2, stages);
    std::set<std::int32_t> seen[3];
    for (std::uint32_t epoch = 0; epoch < 40; ++epoch) {
        const std::size_t d = std::min(epoch / 2, 2u);
        const auto windows = ref.run(epoch);
        EXPECT_EQ(cpu.run(epoch), windows);
        ASSERT_EQ(windows.size(), 10u);
        std::set<std::int32_t> starts;
        for (std::size_t row = 0; row < windows.size(); ++row) {
            EXPECT_EQ(windows[row].length, 7);
            EXPECT_GE(windows[row].tokens.front(), first[d]) << epoch;
            EXPECT_LT(windows[row].tokens.back(), end[d]) << epoch;
            if (row < 5) starts.insert(windows[row].tokens.front());
            seen[d].insert(windows[row].tokens.front());
        }
        EXPECT_EQ(starts.size(), 5u) << "no window twice in an epoch";
    }
    EXPECT_GT(*seen[2].rbegin(), 164 + 5 * 7 + 6) << "windows are drawn from all of a domain, not from its beginning alone";
}

TEST(ResidentText, EvaluationReadsDomainAfterDomain) {
    const auto set = three_domains();
    for (const ops::DeviceKind kind : kKinds)
        for (const std::int32_t length : {1, 4, 11, 64}) {
            const ResidentText source(set, length);
            std::int32_t position = 0, token = 1004;
            ASSERT_EQ(source.domains().size(), 3u);
            for (const Domain& domain : source.domains()) {
                // A set of the one domain alone gives the same windows.
                const std::int32_t tokens = domain.name == "d0"   ? 12
                                            : domain.name == "d1" ? 30
                                                                  : 8,
                                   rows = domain.count(Part::validation);
                TextSet alone = *numbered_text(130, static_cast<std::size_t>(tokens));
                std::iota(alone.parts[1].begin(), alone.parts[1].end(), token);
                GatheredText part(kind, std::make_shared<const TextSet>(alone), length, Part::validation, rows, false);
                GatheredText all(kind, set, length, Part::validation, rows, false);
                EXPECT_EQ(all.run(7, static_cast<std::uint32_t>(position)), part.run(7)) << domain.name << " " << length;
                position += rows, token += tokens;
            }
            EXPECT_EQ(source.samples(Part::validation), position);
        }
}

TEST(ResidentText, TheFirstWindowsOfEveryDomainCanStandForAll) {
    const auto set = three_domains();
    const TextStages stages{0, 1, 2};
    EXPECT_EQ(ResidentText(set, 4, stages).samples(Part::validation), 6);
    EXPECT_EQ(ResidentText(set, 4, stages).samples(Part::train), 60 / 4 - 1);
    for (const ops::DeviceKind kind : kKinds) {
        std::vector<std::int32_t> first, lengths;
        for (const auto& window : GatheredText(kind, set, 4, Part::validation, 6, false, 1, stages).run())
            first.push_back(window.tokens[0]), lengths.push_back(window.length);
        EXPECT_EQ(first, (std::vector<std::int32_t>{1004, 1008, 1016, 1020, 1046, 1050}));
        EXPECT_EQ(lengths, (std::vector<std::int32_t>{4, 4, 4, 4, 4, 3}));
    }
}

TEST(ResidentText, RowsMayHaveAnyStride) {
    const auto set = numbered_text(100);
    ResidentText source(set, 5);
    tensor::View x;
    GatherRig rig(source, ops::DeviceKind::cpu, false, 1, [&](tape::Builder& builder) {
        x = builder.buffer(1, 2, 8, tensor::DType::i32, tape::Role::activation, "x").columns(2, 6);
        source.gather(builder, Part::test, 2, {{"tokens", x}});
        builder.keep(x);
    });
    rig.program->run();
    EXPECT_EQ(rig.program->read(x), (std::vector<double>{2004, 2005, 2006, 2007, 2008, 2009, 2009, 2010, 2011, 2012, 0, 0}));
}

TEST(ResidentText, AWindowHasItsTextForPeople) {
    auto set = std::make_shared<TextSet>(*numbered_text(100));
    set->tokenizer = std::make_shared<const Tokenizer>(Tokenizer::count_words("a b c d e", 4000).value());
    set->parts[index_of(Part::test)] = {4, 5, 6, 7, 8};
    const ResidentText source(set, 3);
    EXPECT_EQ(source.texts_at(Part::test, 0), std::vector<std::string>{"a b c d"});
    EXPECT_EQ(source.texts_at(Part::test, 1), std::vector<std::string>{"d e"});
}

}  // namespace
}  // namespace millrace::data
