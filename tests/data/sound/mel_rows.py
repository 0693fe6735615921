"""Prints mel_rows.inc: decibels of three windows in float64, from the formulas of torchaudio.functional.melscale_fbanks (HTK, norm None)."""
import numpy as np

RATE, SIZE, BANDS = 4096, 512, 64
n = np.arange(SIZE)
windows = {
    "tone": 0.5 * np.sin(2 * np.pi * 440 * n / RATE),
    "saw": ((n * 7919) % 101 - 50) / 100,
    "two": 0.9 * np.cos(2 * np.pi * 96 * n / RATE) + 0.001 * np.cos(2 * np.pi * 1500 * n / RATE),
}
bins = np.linspace(0, RATE // 2, SIZE // 2 + 1)
corners = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS + 2) / 2595) - 1)
widths = corners[1:] - corners[:-1]
slopes = corners[None, :] - bins[:, None]
filters = np.maximum(0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))
hann = 0.5 - 0.5 * np.cos(2 * np.pi * n / SIZE)
print("// Printed by mel_rows.py.")
for name, window in windows.items():
    window = window.astype(np.float32).astype(np.float64)
    decibels = 20 * np.log10(np.maximum(np.abs(np.fft.rfft(window * hann)) @ filters, 1e-10))
    print(f"// {name}\n{{" + ", ".join(f"{value:.9f}" for value in decibels) + "},")
