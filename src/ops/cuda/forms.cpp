#include "ops/cuda/forms.h"

#include <algorithm>
#include <string>
#include <vector>

namespace millrace::ops::cuda {

namespace {

/// What predictions are about: in pinned runs one member, so that others beside it do not change its form.
std::vector<Bound> counted_records(const Context& c, std::span<const Bound> records) {
    std::vector<Bound> counted(records.begin(), records.end());
    for (Bound& bound : counted)
        for (std::size_t slot = 0; c.deterministic && slot < bound.operands.size(); ++slot)
            bound.operands[slot].k = std::min(bound.operands[slot].k, 1);
    return counted;
}

}  // namespace

bool is_asked_for(const Context& c, const char* subject, const Form& form) {
    return std::ranges::find(c.forms, std::string(subject) + "=" + form.name) != c.forms.end();
}

const Form* choose_form(const Context& c, const char* subject, std::span<const Form> forms, std::span<const Bound> records) {
    const std::vector<Bound> counted = counted_records(c, records);
    const Form* best = nullptr;
    double least = 0;
    for (const Form& form : forms) {
        if (form.refuses(c, records) != nullptr) continue;
        if (is_asked_for(c, subject, form)) return &form;
        // Pinned runs replace the library by a plain kernel, which no prediction is about.
        if (c.deterministic && best != nullptr && form.name == std::string("library")) continue;
        const double time = form.predict(c, counted);
        if (best == nullptr || time < least) {
            best = &form;
            least = time;
        }
    }
    return best;
}

KernelResult make_form(Context& c, const char* subject, std::span<const Form> forms, std::span<const Bound> records) {
    const Form* form = choose_form(c, subject, forms, records);
    if (form == nullptr) return base::Error{std::string("there is no way to do ") + subject + " here"};
    MILLRACE_LET(made, form->make(c, records));
    made->form = form->name;
    const std::vector<Bound> counted = counted_records(c, records);
    made->predicted = form->predict(c, counted);
    for (const Form& other : forms) {
        const char* refusal = other.refuses(c, records);
        made->offers.push_back({other.name, refusal ? refusal : "", refusal ? 0 : other.predict(c, counted)});
    }
    return KernelResult(std::move(made));
}

}  // namespace millrace::ops::cuda
