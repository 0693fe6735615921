#include <fmt/format.h>

#include "op_case.h"
#include "ops/dense/dense.h"

namespace millrace::ops::cases {
namespace {

struct Shape {
    int k, g, b, in, out;
    [[nodiscard]] std::string text() const { return fmt::format("K{}_G{}_B{}_In{}_Out{}", k, g, b, in, out); }
};
struct Config {
    Norm norm;
    Activation activation;
    float dropout;
    [[nodiscard]] std::string text() const {
        static constexpr const char* kNorms[] = {"plain", "batch_train", "batch_eval"};
        static constexpr const char* kActivations[] = {"none", "relu", "gelu", "tanh", "sigmoid"};
        return fmt::format("{}_{}{}", kNorms[static_cast<int>(norm)], kActivations[static_cast<int>(activation)],
                           dropout > 0 ? "_drop" : "");
    }
    [[nodiscard]] DenseParams params() const { return {norm, activation, dropout, 1e-5f, 0.1f, 17}; }
    // relu makes zeros of its own, and which side of 0 a sum falls on is a matter of rounding.
    [[nodiscard]] bool zeros_are_dropped() const { return dropout > 0 && activation != Activation::relu; }
};

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu, Activation::tanh,
                                       Activation::sigmoid};
constexpr Shape kSmall{2, 3, 7, 13, 5};
constexpr Config kHidden{Norm::batch_train, Activation::relu, 0.2f};
constexpr Config kHead{Norm::none, Activation::gelu, 0.1f};
constexpr Config kLinear{Norm::none, Activation::none, 0};
constexpr Shape kShapes[] = {
    {1, 1, 1, 1, 1},
    {1, 1, 2, 3, 5},
    {1, 1, 5, 17, 31},
    {3, 1, 32, 24, 16},
    {1, 2, 112, 19, 8},
    {1, 1, 128, 33, 12},
    {1, 1, 256, 8, 9},
    {1, 1, 300, 7, 11},
    {1, 4, 32, 40, 64},
    {2, 4, 32, 64, 48},
    {1, 1, 3, 129, 67},
    {4, 1, 17, 16, 10},
    // clusters of two and four, and wide strips, on CUDA; whole steps at larger sizes are in tests/models
    {1, 1, 100, 520, 9},
    {1, 1, 131, 8, 9},
    {1, 1, 193, 8, 9},
    {1, 1, 8, 8, 1100}};

/// Just enough matrices for each of the wide tiles on CUDA, in groups since every member is also run alone. Rows, columns and
/// summed elements end inside of tiles, in some inside of 16 bytes.
constexpr Shape kMany[] = {{2, 24, 37, 24, 40}, {2, 20, 100, 8, 72}, {1, 70, 100, 72, 64},
                           {2, 50, 33, 10, 17}, {1, 60, 250, 8, 33}, {2, 70, 100, 8, 16}};

/// Batches around the borders of strips, blocks and clusters; the one of 100 rows has clusters of two in f32.
constexpr Shape kBatches[] = {{1, 1, 1, 40, 24},    {2, 1, 2, 12, 9},     {1, 2, 63, 100, 24}, {1, 1, 64, 20, 40},
                              {1, 2, 65, 36, 8},    {1, 1, 128, 260, 17}, {2, 1, 255, 13, 8},  {1, 1, 256, 300, 16},
                              {1, 6, 100, 800, 64}, {1, 6, 128, 33, 64}};

/// Two rows that happen to be close together make a large inv_std, which multiplies the rounding of z.
double slack_of(const Shape& s) { return s.b <= 2 ? 10 : 1; }

OpCase forward(const Shape& s, const Config& config, const std::string& note = "") {
    namespace at = dense_forward;
    OpCase c;
    c.name = fmt::format("dense_forward/{}{}/{}", config.text(), note, s.text());
    c.op = &dense_forward::kDef;
    c.params = config.params();
    c.members = s.k;
    c.slot(at::x, Element::real, s.k, s.g, s.b, s.in, uniform(-1, 1));
    c.slot(at::w, Element::real, s.k, s.g, s.out, s.in, uniform(-0.5, 0.5));
    c.slot(at::bias, Element::stat, s.k, s.g, 1, s.out, uniform(-0.5, 0.5));
    const bool normed = config.norm != Norm::none, training = config.norm != Norm::batch_eval;
    if (normed) {
        c.slot(at::gamma, Element::stat, s.k, s.g, 1, s.out, uniform(0.5, 1.5));
        c.slot(at::beta, Element::stat, s.k, s.g, 1, s.out, uniform(-0.5, 0.5));
        c.slot(at::running_mean, Element::stat, s.k, s.g, 1, s.out, uniform(-0.5, 0.5));
        c.slot(at::running_var, Element::stat, s.k, s.g, 1, s.out, uniform(0.5, 2));
    }
    if (training && (normed || config.activation != Activation::none))
        c.slot(at::saved, Element::real, s.k, s.g, s.b, s.out, poison());
    if (config.norm == Norm::batch_train) c.slot(at::inv_std, Element::stat, s.k, s.g, 1, s.out, poison());
    if (config.dropout > 0) {
        c.states = sample_states(s.k);
        c.state(at::state);
    }
    c.slot(at::y, Element::real, s.k, s.g, s.b, s.out, poison());
    c.slots[at::y].exact_zeros = config.zeros_are_dropped();
    for (const int slot : {at::saved, at::inv_std, at::y})
        c.slots[static_cast<std::size_t>(slot)].slack = normed ? slack_of(s) : 1;
    return c;
}

OpCase backward(const Shape& s, const Config& config, const std::string& note = "") {
    namespace at = dense_backward;
    OpCase c;
    c.name = fmt::format("dense_backward/{}{}/{}", config.text(), note, s.text());
    c.op = &dense_backward::kDef;
    c.params = config.params();
    c.members = s.k;
    const bool normed = config.norm == Norm::batch_train;
    c.slot(at::dy, Element::real, s.k, s.g, s.b, s.out, away(0.05, 1));
    if (normed || config.activation != Activation::none) c.slot(at::saved, Element::real, s.k, s.g, s.b, s.out, away(0.5, 1.5));
    if (normed) {
        // |gamma * xhat| > 0.25 > |beta|: u keeps its sign, so relu's kink is out of reach of rounding.
        c.slot(at::gamma, Element::stat, s.k, s.g, 1, s.out, uniform(0.5, 1.5));
        c.slot(at::beta, Element::stat, s.k, s.g, 1, s.out, uniform(-0.2, 0.2));
        c.slot(at::inv_std, Element::stat, s.k, s.g, 1, s.out, uniform(0.5, 2));
        c.slot(at::dgamma, Element::stat, s.k, s.g, 1, s.out, poison());
        c.slot(at::dbeta, Element::stat, s.k, s.g, 1, s.out, poison());
    } else {
        c.slot(at::dbias, Element::stat, s.k, s.g, 1, s.out, poison());
    }
    if (config.dropout > 0) {
        c.states = sample_states(s.k);
        c.state(at::state);
    }
    c.slot(at::dz, Element::real, s.k, s.g, s.b, s.out, poison());
    c.slots[at::dz].exact_zeros = !normed && config.dropout > 0;
    return c;
}

OpCase batch_case(const OpDef& op, const Shape& s, std::any params, const std::string& note) {
    OpCase c;
    c.name = fmt::format("{}/{}/{}", op.name, note, s.text());
    c.op = &op;
    c.params = std::move(params);
    c.members = s.k;
    return c;
}

/// The records of batch statistics, in the shapes of a layer. Moments are those of no z, but a variance follows from them.
void add_batch_records(std::vector<OpCase>& cases, const Shape& s, const Config& config) {
    const auto vectors = [&](OpCase& c, std::initializer_list<int> slots, const Values& values) {
        for (const int slot : slots) c.slot(slot, Element::stat, s.k, s.g, 1, s.out, values);
    };
    const auto state = [&](OpCase& c, int slot) {
        if (config.dropout <= 0) return;
        c.states = sample_states(s.k);
        c.state(slot);
    };
    const int chunks = moment_chunks(s.b);
    OpCase sums = batch_case(batch_moments::kDef, s, BatchMomentsParams{}, config.text());
    sums.slot(batch_moments::z, Element::stat, s.k, s.g, s.b, s.out, uniform(-1, 1));
    cases.push_back(sums.slot(batch_moments::moments, Element::stat, s.k, s.g, chunks, 2 * s.out, poison()));
    {
        namespace at = batch_apply;
        OpCase c = batch_case(at::kDef, s, config.params(), config.text());
        c.slot(at::z, Element::stat, s.k, s.g, s.b, s.out, uniform(-1, 3));
        c.slot(at::moments, Element::stat, s.k, s.g, chunks, 2 * s.out, uniform(0.5, 1.5));
        vectors(c, {at::bias, at::gamma, at::beta, at::running_mean, at::running_var}, uniform(0.5, 1.5));
        vectors(c, {at::inv_std}, poison());
        state(c, at::state);
        c.slot(at::saved, Element::real, s.k, s.g, s.b, s.out, poison());
        c.slot(at::y, Element::real, s.k, s.g, s.b, s.out, poison());
        c.slots[at::y].exact_zeros = config.zeros_are_dropped();
        cases.push_back(c);
    }
    {
        namespace at = batch_moments_backward;
        OpCase c = batch_case(at::kDef, s, config.params(), config.text());
        c.slot(at::dy, Element::real, s.k, s.g, s.b, s.out, away(0.05, 1));
        c.slot(at::saved, Element::real, s.k, s.g, s.b, s.out, away(0.5, 1.5));
        vectors(c, {at::gamma}, uniform(0.5, 1.5));
        vectors(c, {at::beta}, uniform(-0.2, 0.2));
        c.slot(at::sums, Element::stat, s.k, s.g, chunks, 2 * s.out, poison());
        state(c, at::state);
        cases.push_back(c);
    }
    namespace at = batch_apply_backward;
    OpCase c = backward(s, config);
    c.name = fmt::format("{}/{}/{}", at::kDef.name, config.text(), s.text());
    c.op = &at::kDef;
    c.slot(at::sums, Element::stat, s.k, s.g, chunks, 2 * s.out, uniform(-1, 1));
    cases.push_back(c);
}

OpCase dgrad(const Shape& s, const std::string& note) {
    OpCase c;
    c.name = fmt::format("linear_dgrad/{}/{}", note, s.text());
    c.op = &linear_dgrad::kDef;
    c.params = LinearGradParams{};
    c.members = s.k;
    c.slot(linear_dgrad::dz, Element::real, s.k, s.g, s.b, s.out, uniform(-1, 1));
    c.slot(linear_dgrad::w, Element::real, s.k, s.g, s.out, s.in, uniform(-1, 1));
    return c.slot(linear_dgrad::dx, Element::real, s.k, s.g, s.b, s.in, poison());
}
OpCase wgrad(const Shape& s, const std::string& note) {
    OpCase c;
    c.name = fmt::format("linear_wgrad/{}/{}", note, s.text());
    c.op = &linear_wgrad::kDef;
    c.params = LinearGradParams{};
    c.members = s.k;
    c.slot(linear_wgrad::dz, Element::real, s.k, s.g, s.b, s.out, uniform(-1, 1));
    c.slot(linear_wgrad::x, Element::real, s.k, s.g, s.b, s.in, uniform(-1, 1));
    return c.slot(linear_wgrad::dw, Element::stat, s.k, s.g, s.out, s.in, poison());
}

void window(OpCase& c, int slot, Layout layout) { c.slots[static_cast<std::size_t>(slot)].layout = layout; }

void add_forward_layouts(std::vector<OpCase>& cases) {
    namespace at = dense_forward;
    for (const Config& config : {kHidden, kHead, kLinear}) {
        OpCase concat = forward(kSmall, config, "_concat");
        window(concat, at::x, kWindow);
        window(concat, at::y, kConcat);
        cases.push_back(concat);

        OpCase shared = forward(kSmall, config, "_shared_x");
        window(shared, at::x, {1, 0, false, true});
        window(shared, at::w, kWindow);
        cases.push_back(shared);

        // The widths of the real model with rows that end in padding.
        OpCase padded = forward({1, 2, 32, 784, 24}, config, "_padded");
        window(padded, at::x, {0, 16, false, true});
        window(padded, at::y, {0, 8, true, false});
        cases.push_back(padded);

        OpCase from_concat = forward({2, 2, 5, 8, 3}, config, "_x_in_row");
        window(from_concat, at::x, kConcat);
        cases.push_back(from_concat);

        OpCase no_bias = forward(kSmall, config, "_no_bias");
        no_bias.slots[at::bias].present = false;
        cases.push_back(no_bias);
    }
}

void add_backward_layouts(std::vector<OpCase>& cases) {
    namespace at = dense_backward;
    for (const Config& config : {kHidden, kHead, kLinear}) {
        OpCase concat = backward(kSmall, config, "_concat");
        window(concat, at::dy, kConcat);
        window(concat, at::dz, kWindow);
        cases.push_back(concat);

        OpCase in_place = backward(kSmall, config, "_in_place");
        in_place.slots[at::dz].same_memory_as = at::dy;
        cases.push_back(in_place);

        OpCase adding = backward({2, 2, 33, 1, 9}, config, "_adding");
        for (const int slot : {at::dgamma, at::dbeta, at::dbias}) {
            adding.slots[static_cast<std::size_t>(slot)].values = uniform(-1, 1);
            adding.accumulates(slot);
        }
        cases.push_back(adding);
    }
}

}  // namespace

void add_dense_cases(std::vector<OpCase>& cases) {
    for (const Norm norm : {Norm::none, Norm::batch_train, Norm::batch_eval})
        for (const Activation activation : kActivations)
            for (const float dropout : {0.0f, 0.2f}) {
                if (norm == Norm::batch_eval && dropout > 0) continue;
                cases.push_back(forward(kSmall, {norm, activation, dropout}));
                if (norm != Norm::batch_eval) cases.push_back(backward(kSmall, {norm, activation, dropout}));
            }
    for (const Shape& shape : kShapes)
        for (const Config& config : {kHidden, kHead}) {
            cases.push_back(forward(shape, config));
            cases.push_back(backward(shape, config));
        }
    for (const Shape& shape : kBatches) {
        cases.push_back(forward(shape, kHidden));
        cases.push_back(backward(shape, kHidden));
    }
    for (const Shape& shape : kMany) cases.push_back(forward(shape, shape.out == 16 ? kLinear : kHidden));
    cases.push_back(forward(kMany[1], {Norm::batch_eval, Activation::relu, 0}));
    cases.push_back(forward(kMany[3], {Norm::none, Activation::relu, 0.2f}));
    cases.push_back(forward({1, 1, 0, 5, 3}, kHead));
    cases.push_back(backward({1, 1, 0, 5, 3}, kHead));
    cases.push_back(backward({1, 1, 0, 5, 3}, kHidden));
    cases.push_back(forward({1, 1, 32, 784, 256}, kHidden));
    cases.push_back(forward({1, 1, 32, 800, 384}, kLinear));
    cases.push_back(backward({1, 1, 32, 1, 384}, kHidden));
    cases.push_back(backward({1, 3, 256, 1, 128}, kHidden));
    for (const Config& config : {kHead, kLinear}) {  // so many rows that CUDA leaves the products to the library
        cases.push_back(forward({1, 1, 4099, 72, 64}, config));
        cases.push_back(backward({1, 1, 4099, 1, 64}, config));
        cases.push_back(backward({2, 1, 4097, 1, 3}, config));
        cases.push_back(forward({2, 1, 2051, 8, 384}, config));  // two blocks of columns side by side
        cases.push_back(backward({2, 1, 2051, 1, 384}, config));
    }
    const Config gelu{Norm::none, Activation::gelu, 0};  // more rows for a thread than it loads ahead
    cases.push_back(forward({1, 1, 6211, 1, 768}, gelu));
    cases.push_back(backward({1, 1, 6211, 1, 768}, gelu));
    cases.push_back(backward({1, 1, 6211, 1, 101}, gelu));
    add_forward_layouts(cases);
    add_backward_layouts(cases);
    for (const Shape& shape : {kSmall, Shape{1, 1, 1, 1, 1}, Shape{2, 1, 64, 1, 40}, Shape{1, 3, 300, 1, 37}})
        for (const Config& config : {kHidden, Config{Norm::batch_train, Activation::gelu, 0}})
            add_batch_records(cases, shape, config);
    for (const char* note : {"_stat", "_stat_no_bias"}) {  // the product alone, as batch statistics read it
        OpCase stat = forward({2, 2, 70, 24, 40}, kLinear, note);
        stat.slots[dense_forward::y].element = Element::stat;
        stat.slots[dense_forward::bias].present = std::string(note) == "_stat";
        cases.push_back(stat);
    }
}

std::vector<OpCase> tile_cases() {
    const Config gelu{Norm::none, Activation::gelu, 0}, evaluated{Norm::batch_eval, Activation::relu, 0};
    std::vector<OpCase> cases;
    // rows, columns and summed elements end inside of tiles, slices and panels; columns inside of 16 bytes
    const Shape many{1, 1, 700, 136, 264}, members{3, 2, 130, 200, 72};
    for (const Config& config : {gelu, kHead, kHidden, kLinear, evaluated}) cases.push_back(forward(many, config));
    for (const Config& config : {kHead, kHidden, kLinear}) cases.push_back(forward(members, config));
    for (const Activation activation : kActivations) cases.push_back(forward({1, 1, 150, 40, 96}, {Norm::none, activation, 0}));
    for (const Shape& shape : {Shape{1, 1, 300, 64, 75}, Shape{1, 1, 64, 64, 64}, Shape{1, 1, 1, 8, 8}, Shape{1, 1, 129, 72, 16}})
        cases.push_back(forward(shape, kHead));
    for (const Shape& shape : {Shape{1, 1, 700, 264, 136}, Shape{3, 2, 130, 72, 200}, Shape{1, 1, 65, 40, 8}}) {
        OpCase c = dgrad(shape, "plain");
        cases.push_back(c);
        c.name += "/adding";
        c.slots[linear_dgrad::dx].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_dgrad::dx));
        c.name += "/stat";
        c.slots[linear_dgrad::dx].element = Element::stat;
        cases.push_back(c);
        c = wgrad(shape, "plain");
        cases.push_back(c);
        c.name += "/adding";
        c.slots[linear_wgrad::dw].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_wgrad::dw));
    }
    return cases;
}

std::vector<PairCase> pair_cases() {
    const Config gelu{Norm::none, Activation::gelu, 0}, relu{Norm::none, Activation::relu, 0.2f};
    std::vector<PairCase> cases;
    // rows and columns that end inside of tiles and panels, a single row, members, groups side by side
    const Shape many{1, 1, 700, 136, 264}, members{3, 1, 130, 200, 72}, groups{1, 2, 129, 72, 40};
    for (const Shape& s : {many, members, groups, Shape{1, 1, 65, 8, 40}, Shape{2, 1, 1, 16, 8}})
        for (const Config& config : {gelu, relu, kLinear, kHead, kHidden}) {
            PairCase pair{dgrad(s, "pair"), backward({s.k, s.g, s.b, 1, s.in}, config, "_pair")};
            if (s.g > 1)
                for (Slot* slot : {&pair.dgrad.slots[linear_dgrad::dx], &pair.backward.slots[dense_backward::dy]})
                    slot->layout.groups_in_row = true;
            cases.push_back(pair);
        }
    PairCase adding = cases.front();
    adding.dgrad.slots[linear_dgrad::dx].values = uniform(-1, 1);
    adding.dgrad.accumulates(linear_dgrad::dx);
    adding.backward.name += "/adding";
    cases.push_back(adding);
    return cases;
}

void add_linear_cases(std::vector<OpCase>& cases) {
    for (const Shape& shape : kShapes) {
        cases.push_back(dgrad(shape, "plain"));
        cases.push_back(wgrad(shape, "plain"));
    }
    for (const Shape& shape : kBatches) cases.push_back(dgrad(shape, "batches"));
    for (const Shape& shape : kMany) {
        OpCase c = dgrad({shape.k, shape.g, shape.b, shape.out, shape.in}, "many");
        if (shape.k == 2) {
            c.slots[linear_dgrad::dx].values = uniform(-1, 1);
            c.accumulates(linear_dgrad::dx);
        }
        cases.push_back(c);
    }
    cases.push_back(wgrad({1, 1, 32, 784, 128}, "plain"));
    cases.push_back(dgrad({1, 1, 32, 256, 384}, "plain"));
    // long operands, which the CPU shares out by rows
    cases.push_back(wgrad({1, 1, 2003, 271, 131}, "plain"));
    cases.push_back(wgrad({2, 1, 700, 19, 390}, "plain"));
    cases.push_back(dgrad({1, 1, 401, 37, 700}, "plain"));
    // more tiles than a GPU computes at once: of 64 x 64 where most of 128 x 128 would be empty
    for (const Shape& many : {Shape{4, 52, 70, 136, 8}, Shape{4, 34, 70, 136, 120}}) {
        OpCase tiles = wgrad(many, "tiles_adding");
        tiles.slots[linear_wgrad::dw].values = uniform(-1, 1);
        cases.push_back(tiles.accumulates(linear_wgrad::dw));
    }
    cases.push_back(wgrad({2, 134, 37, 9, 5}, "tiles"));
    cases.push_back(wgrad({2, 134, 70, 101, 99}, "tiles"));
    cases.push_back(dgrad({1, 1, 0, 5, 3}, "plain"));
    cases.push_back(wgrad({2, 1, 0, 5, 3}, "plain"));
    for (const Shape& many : {Shape{1, 1, 4099, 72, 48}, Shape{1, 1, 4100, 65, 48}, Shape{2, 1, 4097, 5, 3},
                              Shape{1, 1, 4101, 264, 4}, Shape{1, 2, 4096, 40, 1}}) {
        cases.push_back(dgrad(many, "plain"));
        cases.push_back(wgrad(many, "plain"));
        OpCase c = dgrad(many, "stat_adding");
        c.slots[linear_dgrad::dx].element = Element::stat;
        c.slots[linear_dgrad::dx].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_dgrad::dx));
    }
    // more columns on the side of x than the weight has
    for (const Shape& shape : {kSmall, Shape{2, 1, 37, 13, 9}, Shape{1, 1, 300, 65, 48}, Shape{1, 1, 4102, 65, 48},
                               Shape{2, 1, 2100, 65, 24}, Shape{1, 1, 2049, 9, 3}}) {
        const int wide = (shape.in + 8) / 8 * 8;
        OpCase c = dgrad(shape, "wide");
        c.slots[linear_dgrad::dx].cols = wide;
        cases.push_back(c);
        c.name = fmt::format("linear_dgrad/wide_adding/{}", shape.text());
        c.slots[linear_dgrad::dx].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_dgrad::dx));
        c = wgrad(shape, "wide");
        c.slots[linear_wgrad::x].cols = wide;
        cases.push_back(c);
        c.name = fmt::format("linear_wgrad/wide_adding/{}", shape.text());
        c.slots[linear_wgrad::dw].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_wgrad::dw));
    }
    // with the bias's sums: in every form, rows that end inside of slices, sums that blocks share, members and groups; with
    // windows odd numbers of columns whose rows begin at multiples of 16 bytes
    for (const Shape& shape : {kSmall, Shape{2, 1, 0, 5, 3}, Shape{1, 1, 300, 64, 24}, Shape{1, 2, 777, 136, 72},
                               Shape{2, 1, 1000, 264, 200}, Shape{1, 1, 4099, 72, 48}, Shape{1, 1, 4097, 65, 3}}) {
        OpCase c = wgrad(shape, "bias");
        c.slot(linear_wgrad::dbias, Element::stat, shape.k, shape.g, 1, shape.out, poison());
        cases.push_back(c);
        c.name = fmt::format("linear_wgrad/bias_adding/{}", shape.text());
        c.slots[linear_wgrad::dbias].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_wgrad::dbias));
    }
    for (const Shape& shape : {Shape{1, 1, 777, 61, 77}, Shape{2, 1, 520, 133, 13}}) {
        OpCase c = wgrad(shape, "bias_windows");
        c.slot(linear_wgrad::dbias, Element::stat, shape.k, shape.g, 1, shape.out, poison(), kWindow);
        window(c, linear_wgrad::dz, {0, 3, false, false});
        window(c, linear_wgrad::x, {0, 3, false, false});
        cases.push_back(c);
    }
    for (const Shape& shape : {kSmall, Shape{1, 1, 300, 64, 24}}) {
        OpCase c = dgrad(shape, "stat");
        c.slots[linear_dgrad::dx].element = Element::stat;
        cases.push_back(c);
        c.name = fmt::format("linear_dgrad/stat_adding/{}", shape.text());
        c.slots[linear_dgrad::dx].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_dgrad::dx));
    }
    for (const Shape& shape : {kSmall, Shape{1, 2, 32, 16, 24}}) {
        OpCase c = dgrad(shape, "adding");
        c.slots[linear_dgrad::dx].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_dgrad::dx));
        c = wgrad(shape, "adding");
        c.slots[linear_wgrad::dw].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_wgrad::dw));

        c = dgrad(shape, "windows");  // w: a column window of the layer's weight; dx: side by side in the concatenated gradient
        window(c, linear_dgrad::w, kWindow);
        window(c, linear_dgrad::dz, {0, 3, false, false});
        window(c, linear_dgrad::dx, kConcat);
        cases.push_back(c);
        c = wgrad(shape, "windows");
        window(c, linear_wgrad::dz, kConcat);
        window(c, linear_wgrad::x, {2, 1, false, true});
        window(c, linear_wgrad::dw, kWindow);
        cases.push_back(c);
        c.name = fmt::format("linear_wgrad/windows_adding/{}", shape.text());
        c.slots[linear_wgrad::dw].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_wgrad::dw));
    }
}

}  // namespace millrace::ops::cases
