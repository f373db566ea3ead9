// Numbers as people read them. Durations come in seconds, shares from 0 to 1.

const DASH = "–";

/** A count, with thousands apart: 12,345; from a million on 1.2 M. */
export function count(value) {
  if (!isNumber(value)) return DASH;
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  return Math.round(value).toLocaleString("en");
}

/** A rate or another number that may be small: three figures. */
export function number(value) {
  if (!isNumber(value)) return DASH;
  if (value >= 1000) return count(value);
  if (value >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** 850 µs, 12.3 ms, 1.24 s, 2 min 5 s, 3 h 20 min. */
export function duration(seconds) {
  if (!isNumber(seconds)) return DASH;
  if (seconds < 0.0005) return seconds <= 0 ? "0 ms" : `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.0995) return `${trimmed(seconds * 1e3, 1)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1e3)} ms`;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 119.5) return `${trimmed(seconds, 1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

/** 41 %, 0.4 %, <0.1 %. */
export function percent(share) {
  if (!isNumber(share)) return DASH;
  const value = share * 100;
  if (value > 0 && value < 0.05) return "<0.1 %";
  return `${value > 0 && value < 9.95 ? trimmed(value, 1) : Math.round(value)} %`;
}

/** A time of day, by the visitor's clock. */
export function clock(unixSeconds) {
  return new Date(unixSeconds * 1000).toLocaleTimeString("en-GB");
}

/** The same with no more figures than it takes: of 2.50 s, 2.5 s. For scales. */
export function shortened(text) {
  return text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function trimmed(value, digits) {
  return value.toFixed(digits).replace(/\.0+$/, "");
}
