"""The browser that the page tests share."""

import shutil

import pytest


def started():
    """Chromium without a window; quit it in the end."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    chromium, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.fail("needs Chromium and its driver: apt-get install chromium chromium-driver", pytrace=False)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


def find(browser, selector):
    return browser.find_element("css selector", selector)


def all_of(browser, selector):
    return browser.find_elements("css selector", selector)


def count(browser, selector):
    return browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector)


def screen(browser, width):
    """The screen of a desk or of a telephone, in CSS pixels."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def whole_screen(browser):
    """The window's own size again."""
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def crowded(browser, selector):
    """Words that come nearer to the border of what the selector finds than its padding."""
    return browser.execute_script(
        """
        const near = [];
        for (const box of document.querySelectorAll(arguments[0])) {
          const style = getComputedStyle(box), edge = box.getBoundingClientRect(), text = document.createRange();
          const px = (side, what) => parseFloat(style[what + side + (what === "border" ? "Width" : "")]);
          const inset = (side) => px(side, "border") + px(side, "padding");
          text.selectNodeContents(box);
          for (const words of text.getClientRects())
            if (words.left < edge.left + inset("Left") - 0.5 || words.right > edge.right - inset("Right") + 0.5)
              near.push(box.textContent);
        }
        return near;
        """,
        selector,
    )


def wait(browser, condition):
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, 120).until(lambda _: condition())
