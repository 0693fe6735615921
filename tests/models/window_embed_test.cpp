// The embedding that finds its windows itself against the two records, to the bit.

#include <fmt/format.h>

#include "data/text/text_set.h"
#include "models/model_rig.h"
#include "nn/text.h"
#include "ops/step/step.h"
#include "optim/update.h"
#include "tape/record.h"

namespace millrace {
namespace {

constexpr std::int32_t kWords = 50;
constexpr int kSteps = 4;

struct WindowCase {
    std::int32_t length, rows, width = 128;
    int members = 1;
    bool training = true;
    std::int32_t vocabulary = kWords;  ///< of the embedding; fewer: some tokens are none
    bool two_domains = false;
};

const WindowCase kWindowCases[] = {
    {64, 32, 256},
    {23, 7, 128, 3},
    {91, 5, 24},
    {91, 5, 13},
    {1, 37, 128},
    {1, 3, 12, 3},
    {23, 7, 128, 2, true, kWords, true},
    {64, 4, 128, 1, false},
    {23, 5, 40, 3, false, kWords, true},
    {23, 7, 128, 2, true, kWords - 2},
};

std::shared_ptr<const data::TextSet> some_text(bool two_domains) {
    data::TextSet set;
    set.name = "one";
    set.vocabulary = kWords;
    set.tokenizer = std::make_shared<const data::Tokenizer>(data::Tokenizer::count_words("word", kWords).value());
    for (std::size_t part = 0; part < data::kPartCount; ++part)
        for (std::uint64_t i = 0; i < 9000 + 3 * part; ++i)
            set.parts[part].push_back(
                static_cast<std::int32_t>(base::random_bits(5, static_cast<std::uint32_t>(part), 0, 0, i) % kWords));
    set.statistics = data::measure_text(set);
    if (!two_domains) return std::make_shared<const data::TextSet>(std::move(set));
    data::TextSet other = set;
    other.name = "other";
    for (auto& tokens : other.parts) std::ranges::reverse(tokens);
    return std::make_shared<const data::TextSet>(data::join_texts({set, other}).value());
}

/// What the last of some steps left.
struct Embedded {
    std::vector<double> ids, lengths, rows;
    std::vector<std::uint32_t> nonfinite, positions;
    bool joined = false;

    bool operator==(const Embedded& other) const {
        return ids == other.ids && lengths == other.lengths && rows == other.rows && nonfinite == other.nonfinite &&
               positions == other.positions;
    }
};

void append_step(tape::Builder& builder, const WindowCase& c, const nn::TokenEmbedding& embedding, data::BatchSource& source,
                 std::vector<tensor::View>& kept) {
    const data::Part part = c.training ? data::Part::train : data::Part::validation;
    if (c.training) optim::append_step_begin(builder);
    builder.close_section();
    kept = source.gather(builder, part, c.rows, {{"tokens"}, {"length"}});
    kept.push_back(embedding.forward(builder, {kept[0].columns(0, c.length), kept[1]}).view);
    for (const tensor::View& view : kept) builder.keep(view);
    const ops::MicroEndParams end{
        static_cast<std::uint32_t>(c.rows), static_cast<std::uint32_t>(source.samples(part)), c.training, 1, 1,
        static_cast<std::uint32_t>(c.rows)};
    builder.append(tape::record_of(&ops::micro_end::kDef, end, "step", {builder.store().state()}));
    builder.close_section();
}

Embedded embed(const WindowCase& c, ops::DeviceKind device, tape::Precision precision, const std::vector<std::string>& off,
               bool replay = false) {
    const auto backend = ops::make_backend(device, {.rewrites_off = off}).value();
    tape::StoreOptions options;
    options.precision = precision;
    options.members = c.members;
    tape::Store store(*backend, options);
    const nn::TokenEmbedding embedding(store, "embed", c.vocabulary, c.length, c.width);
    data::ResidentText source(some_text(c.two_domains), c.length);
    EXPECT_TRUE(source.declare(store).ok() && store.allocate().ok() && source.upload(store).ok());
    store.initialize(c.members == 1   ? std::vector<std::uint64_t>{7}
                     : c.members == 2 ? std::vector<std::uint64_t>{7, 8}
                                      : std::vector<std::uint64_t>{7, 8, 9});
    tape::BuildOptions build;
    build.training = c.training;
    tape::Builder builder(store, build);
    std::vector<tensor::View> kept;
    append_step(builder, c, embedding, source, kept);
    tape::Arena arena(*backend);
    tape::Program program("step", store, std::move(builder), arena);
    EXPECT_TRUE(arena.allocate().ok() && program.prepare().ok());
    Embedded found;
    for (int step = 0; step < kSteps; ++step) {
        if (step == 1 && replay) {
            EXPECT_TRUE(program.capture().ok());
        }
        if (step == 2) {
            auto states = store.read_states();
            for (ops::MemberState& state : states) state.epoch = 3;
            store.write_states(states);
        }
        program.launch();
    }
    backend->synchronize();
    EXPECT_TRUE(backend->check().ok());
    for (const ops::Record& record : program.records())
        found.joined = found.joined || std::string(record.op->name) == "window_embed";
    found.ids = program.read(kept[0]);
    found.lengths = program.read(kept[1]);
    found.rows = program.read(kept[2]);
    for (const ops::MemberState& state : store.read_states()) {
        found.nonfinite.push_back(state.nonfinite);
        found.positions.push_back(c.training ? state.position : state.eval_position);
    }
    return found;
}

TEST(WindowEmbed, OnAgainstOffAndTheCpu) {
    if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    using enum ops::DeviceKind;
    for (const WindowCase& c : kWindowCases) {
        SCOPED_TRACE(fmt::format("{} windows of {}, width {}, {} members", c.rows, c.length, c.width, c.members));
        const Embedded host = embed(c, cpu, tape::Precision::f32, {});
        EXPECT_EQ(host.nonfinite[0], c.vocabulary < kWords ? 1u : 0u);
        for (const tape::Precision precision : {tape::Precision::f32, tape::Precision::bf16, tape::Precision::f16}) {
            const Embedded off = embed(c, cuda, precision, {"window_embed"}), on = embed(c, cuda, precision, {});
            EXPECT_TRUE(on.joined && !off.joined);
            EXPECT_EQ(on, off);
            EXPECT_EQ(embed(c, cuda, precision, {}, true), on) << "replay";
            EXPECT_EQ(on.ids, host.ids);
            EXPECT_EQ(on.lengths, host.lengths);
            if (precision == tape::Precision::f32) {
                EXPECT_EQ(on, host);
            }
        }
    }
}

/// The steps of the test above, on the host: windows go on from step to step.
TEST(WindowEmbed, CasesHaveFilledWindowsOnTheHost) {
    for (const WindowCase& c : kWindowCases) {
        const Embedded cpu = embed(c, ops::DeviceKind::cpu, tape::Precision::f32, {});
        EXPECT_FALSE(cpu.joined);
        EXPECT_EQ(cpu.rows.size(), std::size_t(c.members) * static_cast<std::size_t>(c.rows * c.length * c.width));
        EXPECT_GT(cpu.lengths[0], 0);
        EXPECT_GT(cpu.positions[0], 0u);
        EXPECT_EQ(cpu.nonfinite[0], c.vocabulary < kWords ? 1u : 0u);
    }
}

}  // namespace
}  // namespace millrace
