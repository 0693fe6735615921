#include "dense_case.h"

namespace millrace::ops::cases {
namespace dense {
namespace {

/// Two rows that happen to be close together make a large inv_std, which multiplies the rounding of z.
double slack_of(const Shape& s) { return s.b <= 2 ? 10 : 1; }

}  // namespace

OpCase forward(const Shape& s, const Config& config, const std::string& note) {
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

OpCase backward(const Shape& s, const Config& config, const std::string& note) {
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

namespace {

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
}  // namespace dense

void add_dense_cases(std::vector<OpCase>& cases) {
    using namespace dense;
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

}  // namespace millrace::ops::cases
